#pragma once

#include "../functions.h"
#include "../row_layout.h"

/// What the primitives' eval_gpu encode: the same results as their eval_cpu, without a wait
/// for the GPU. Arguments are already checked, and `supports` says which of them the
/// kernels take; everything else goes to fallback.h. Without Metal in this build each
/// throws std::logic_error.
namespace h2o::metal {

/// The row of a token that takes the victim's place.
inline constexpr int over_victim = -1;

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

/// One step of a cache: its attention and its ledger.
struct Step {
  mx::array new_keys; // the buffer that holds them
  VectorLayout key;   // their layout
  CacheConfig config;
  mx::Dtype dtype = mx::float32;
  std::optional<Attention> attention = {}; // none: written but not attended
  std::optional<mx::array> mask = {}; // [B, Hq, L, N] in the dtype that it was given in
  int tokens = 1;
  int offset = 0;       // tokens seen before
  int first_row = 0;    // the first token's entry, over_victim when the buffer is full
  int rows = 0;         // in use now
  bool chooses = false; // a victim for the next token
  /// With a ring: its slots follow the pool's entries.
  bool has_ring = false;
  bool leaves = false;
  int pool_used = 0;
  int pool_rows = 0;
  int pool_size = 0;
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

/// Gives a step what `push_masks` appended on a GPU.
void take_masks(
    Step& step, std::vector<mx::array>::const_iterator inputs, bool masked, bool sunk);

/// Encodes attention and the ledger's update: outputs are scores, positions, novelty,
/// key_sum, victim and, with attention, out.
void step(
    mx::Stream stream,
    const Step& step,
    const std::vector<mx::array>& ledger,
    std::vector<mx::array>& outputs);

/// Tokens that go into the rows of `pool`, or into those of a ring, whose leaving token goes
/// to the pool.
struct Write {
  mx::array keys;
  mx::array values;
  mx::array victim;
  int first_row; // of the tokens, over_victim when the buffer is full
  bool leaves = false;
  int pool_used = 0;
  int pool_size = 0; // rows that the pool may have
  RowLayout pool_layout = {};
  std::optional<RowLayout> ring_layout = {};
};

/// Makes `to` the buffer of `from`, if it may share it and has its shape, or a copy of its
/// first `length` rows.
void carry_over(
    mx::Stream stream, const mx::array& from, int length, bool share, mx::array& to);

void write(mx::Stream stream, const Write& write, mx::array& pool, mx::array* ring);

} // namespace h2o::metal
