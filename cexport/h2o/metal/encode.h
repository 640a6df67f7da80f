#pragma once

#include <map>
#include <string>

#include "../cache_step.h"
#include "../functions.h"
#include "../row_layout.h"

/// What the primitives' eval_gpu encode: the same results as their eval_cpu, without a wait
/// for the GPU. Arguments are already checked, and `supports` says which of them the
/// kernels take; everything else goes to fallback.h. Without Metal in this build each
/// throws std::logic_error.
namespace h2o::metal {

/// What decides whether our kernels can attend.
struct CallShape {
  mx::Dtype dtype;      // of the queries
  mx::Dtype rows_dtype; // of keys and values, or of their scales and biases
  int key_dim;
  int value_dim;
  int group; // query heads of a KV head
  int tokens;
};

bool supports(const CallShape& shape);

/// Compiles one instance of a kernel for the GPU, as its first use does; throws
/// std::runtime_error with the compiler's words where it is refused.
void compile_kernel(const std::string& kernel, const std::vector<std::string>& arguments);

/// Threads of a pipeline's threadgroups: the most that the GPU allows, and the most dispatched.
struct PipelineThreads {
  int allowed;
  int used;
};

/// The pipelines that write scores and were dispatched in this process, by name.
std::map<std::string, PipelineThreads> scoring_pipelines();

/// A mask as the kernels read it: [B, Hq, L, N], an additive one in `dtype`.
mx::array mask_for(
    const mx::array& mask, mx::Dtype dtype, const mx::Shape& shape, mx::StreamOrDevice s);

/// A part of the rows: keys and values as they are, or words, scales and biases of each,
/// [B, Hkv, N, *], or both side by side in a buffer.
struct Part {
  int rows; // N
  int key_bits;
  int value_bits;
  std::vector<mx::array> keys;
  std::vector<mx::array> values;
  /// Offsets in bytes of keys' and values' arrays; of one buffer, all are the buffer.
  std::vector<int64_t> key_offsets;
  std::vector<int64_t> value_offsets;
};

/// The first `count` rows of a cache's buffer.
Part part_of(const mx::array& rows, const RowLayout& layout, int count);

struct Attention {
  mx::array queries;
  std::vector<Part> parts; // one, or the pool's and the ring's
  int kv_heads;
  int dim;
  int group_size;
  float scale;
  bool causal;
  std::optional<mx::array> mask = {};  // bool or in the queries' dtype
  std::optional<mx::array> sinks = {}; // in the queries' dtype
};

/// Encodes attention: out [B, Hq, L, D] and, unless null, scores [B * Hq * L, N].
void attend(
    mx::Stream stream, const Attention& attention, mx::array& out, mx::array* scores);

/// What new tokens do to the ledger, and their attention.
struct LedgerUpdate {
  CacheStep step;
  mx::array newest; // the buffer that holds the new keys
  VectorLayout key; // their layout
  mx::Dtype dtype;
  std::optional<Attention> attention = {}; // none: written but not attended
  std::optional<mx::array> mask = {}; // [B, Hq, L, N] in the dtype that it was given in
  std::optional<mx::array> held = {}; // bool [B, Hkv, C]
};

/// Appends to a primitive's inputs the mask as given, on a GPU the mask for attention over
/// `rows` rows, and the sinks, each only if there is one.
void push_masks(
    std::vector<mx::array>& inputs,
    const mx::array& queries,
    int rows,
    const std::optional<mx::array>& mask,
    const std::optional<mx::array>& sinks,
    mx::Stream stream);

/// Gives an update what `push_masks` appended on a GPU.
void take_masks(
    LedgerUpdate& update,
    std::vector<mx::array>::const_iterator inputs,
    bool has_mask,
    bool has_sinks);

/// Encodes attention and the ledger's update: outputs are scores, positions, novelty,
/// key_sum, victim and, with attention, out.
void update_ledger(
    mx::Stream stream,
    const LedgerUpdate& update,
    const std::vector<mx::array>& ledger,
    std::vector<mx::array>& outputs);

/// New tokens [B, Hkv, L, D] and the ledger's victim.
struct NewTokens {
  mx::array keys;
  mx::array values;
  mx::array victim;
};

/// Makes `to` the buffer of `from`, if it may share it and has its shape, or a copy of its
/// first `length` rows.
void carry_over(
    mx::Stream stream, const mx::array& from, int length, bool share, mx::array& to);

/// Puts tokens into `buffers`, the pool and, if there is one, the ring.
void write(
    mx::Stream stream,
    const CacheStep& step,
    const Layouts& layouts,
    const NewTokens& tokens,
    std::vector<mx::array>& buffers);

} // namespace h2o::metal
