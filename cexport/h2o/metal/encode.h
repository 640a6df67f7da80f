#pragma once

#include <set>
#include <string>

#include "../cache_step.h"
#include "../functions.h"
#include "../row_layout.h"

/// The functions that the primitives' eval_gpu calls. They compute the same results
/// as eval_cpu and do not wait for the GPU. Arguments are already checked. `supports` says
/// which arguments the kernels can handle; fallback.h handles all others. In a build
/// without Metal each function throws std::logic_error.
namespace h2o::metal {

/// The properties of a call that decide whether our kernels can handle it.
struct CallShape {
  mx::Dtype dtype;      // of the queries
  mx::Dtype rows_dtype; // of keys and values, or of their scales and biases
  int key_dim;
  int value_dim;
  int group; // query heads of a KV head
  int tokens;
};

bool supports(const CallShape& shape);

/// Compiles one instance of a kernel for the GPU, as its first use would. Throws
/// std::runtime_error with the compiler's message if it does not compile.
void compile_kernel(const std::string& kernel, const std::vector<std::string>& arguments);

/// The names of the pipelines that write scores and that this process has used.
std::set<std::string> scoring_pipelines();

/// A part of the rows: keys and values, or words, scales and biases of each, as arrays
/// [B, Hkv, N, *], or side by side in one buffer.
struct Part {
  int rows; // N
  int key_bits;
  int value_bits;
  std::vector<mx::array> keys;
  std::vector<mx::array> values;
  /// The arrays of keys and values with their offsets in bytes; for one buffer, each
  /// array is that buffer.
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

  int batch() const {
    return queries.shape(0);
  }
  int heads() const {
    return queries.shape(1);
  }
  int tokens() const {
    return queries.shape(2);
  }
  int group() const {
    return heads() / kv_heads;
  }
  int rows() const {
    return parts[0].rows + (parts.size() == 2 ? parts[1].rows : 0);
  }
};

/// Encodes attention: out [B, Hq, L, D] and, unless null, scores [B * Hq * L, N].
void attend(
    mx::Stream stream, const Attention& attention, mx::array& out, mx::array* scores);

/// An update of the ledger by new tokens, with their attention.
struct LedgerUpdate {
  CacheStep step;
  mx::Dtype dtype;
  std::optional<Attention> attention = {}; // none: written but not attended
  std::optional<mx::array> mask = {}; // [B, Hq, L, N] in the dtype that it was given in
};

/// Appends to a primitive's inputs, if there are any: the caller's mask, then on a GPU the
/// same mask in the form for attention, and then the sinks. On a GPU, masks are broadcast
/// to [B, Hq, L, rows], and additive masks for attention and sinks have the dtype of the
/// queries.
void push_masks(
    std::vector<mx::array>& inputs,
    const mx::array& queries,
    int rows,
    const std::optional<mx::array>& mask,
    const std::optional<mx::array>& sinks,
    mx::Stream stream);

/// Encodes attention and the ledger's update: outputs are scores, positions, victim
/// and, with attention, out.
void update_ledger(
    mx::Stream stream,
    const LedgerUpdate& update,
    const std::vector<mx::array>& ledger,
    std::vector<mx::array>& outputs);

/// Copies the first `length` rows of every head into another buffer.
void copy_rows(mx::Stream stream, const mx::array& from, int length, mx::array& to);

/// Writes new keys and values [B, Hkv, L, D] to `buffers`: the pool and, if there is one,
/// the ring. `victim` is the ledger's.
void write(
    mx::Stream stream,
    const CacheStep& step,
    const Layouts& layouts,
    const mx::array& keys,
    const mx::array& values,
    const mx::array& victim,
    std::vector<mx::array>& buffers);

} // namespace h2o::metal
