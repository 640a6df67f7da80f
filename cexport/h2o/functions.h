#pragma once

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "config.h"
#include "mlx/array.h"
#include "mlx/utils.h"

/// Attention that reports its logits, and the H2O cache built on it.
///
/// B batch, Hq query heads, Hkv KV heads, G = Hq / Hkv, L new tokens, N rows in
/// use, C `max_size`, Dk and Dv the head dims of keys and values. A *position*
/// is a token's index in the sequence, a *row* its place in the buffer.
/// Wrong shapes, dtypes and settings throw std::invalid_argument.
namespace h2o {

namespace mx = mlx::core;

/// The logit of a row that a query does not see.
inline constexpr float lowest = std::numeric_limits<float>::lowest();
inline constexpr float infinity = std::numeric_limits<float>::infinity();

/// A mask in the forms of MLX's attention: none, `causal`, or an array that broadcasts to
/// [B, Hq, L, N]. In a bool array true means visible; any other array is added to the
/// logits.
struct Mask {
  bool causal = false;
  std::optional<mx::array> values = std::nullopt;
};

/// `mode` is "", "array" or "causal", as in mlx::core::fast.
Mask make_mask(const std::string& mode, std::optional<mx::array> values);

/// out [B, Hq, L, Dv] in the dtype of `queries`; scores float32 [B * Hq * L, N],
/// the logits scale * q.k (+ additive mask), the lowest finite float where a
/// row is hidden. `sinks` [Hq] are extra logits without a value.
std::pair<mx::array, mx::array> scaled_dot_product_attention_with_scores(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    float scale,
    const Mask& mask = {},
    const std::optional<mx::array>& sinks = std::nullopt,
    mx::StreamOrDevice s = {});

/// The same function for keys and values in MLX's affine quantization. Each consists of
/// words, uint32 [B, Hkv, N, D * bits / 32], and of scales and biases [B, Hkv, N, D /
/// group_size].
std::pair<mx::array, mx::array> scaled_dot_product_attention_quantized_with_scores(
    const mx::array& queries,
    const std::vector<mx::array>& keys,
    const std::vector<mx::array>& values,
    float scale,
    const RowFormat& format,
    const Mask& mask = {},
    const std::optional<mx::array>& sinks = std::nullopt,
    mx::StreamOrDevice s = {});

/// The scores and positions of a cache's rows, and the next row to evict.
struct Ledger {
  mx::array scores;    ///< float32 [B, Hkv, C], -1 if not observed yet
  mx::array positions; ///< int32 [B, Hkv, C], -1 if the row is empty
  mx::array victim;    ///< int32 [B, Hkv], the next row to evict; -1 until C rows are used
};

/// The arrays of a ledger in their order.
inline std::vector<mx::array> arrays_of(const Ledger& ledger) {
  return {ledger.scores, ledger.positions, ledger.victim};
}

/// The ledger of an empty cache.
Ledger make_ledger(
    int batch, int kv_heads, const CacheConfig& config, mx::StreamOrDevice s = {});

/// The buffers of a cache; buffers of quantized rows have the dtype uint32.
struct Rows {
  mx::array pool;                               ///< [B, Hkv, capacity, row]
  std::optional<mx::array> ring = std::nullopt; ///< the same, if the format has a ring
};

/// The pool and, if there is one, the ring.
inline std::vector<mx::array> arrays_of(const Rows& rows) {
  return rows.ring ? std::vector{rows.pool, *rows.ring} : std::vector{rows.pool};
}

/// The ledger without the rows from `length` on. This is correct only for a cache without
/// a ring before its first eviction, where a row's index is its position.
Ledger trim_ledger(const Ledger& ledger, int length, mx::StreamOrDevice s = {});

struct WriteArguments {
  std::optional<Rows> rows; ///< none for an empty cache
  mx::array keys;           ///< [B, Hkv, L, Dk]
  mx::array values;         ///< [B, Hkv, L, Dv]
  mx::array victim;         ///< of the ledger
  int offset;               ///< tokens seen before
  bool copy = false;        ///< write into copies of `rows`
};

/// Writes new tokens to the rows. Buffers grow in steps of 256 rows. CacheStep says which
/// rows the tokens get.
///
/// The result shares the buffers of `rows` unless they must grow or `copy` is true. If it
/// shares them, nothing else may read `rows` or a view of them.
Rows cache_write(
    const WriteArguments& arguments, const CacheConfig& config, mx::StreamOrDevice s = {});

/// The attention of the last `a` queries to positions that are not in the rows.
struct Elsewhere {
  mx::array out;   ///< float32 [B, Hq, a, Dv]
  mx::array total; ///< float32 [B, Hq, a], the logarithm of the sum of exp(logit)
};

struct AttendArguments {
  std::optional<mx::array> queries; ///< [B, Hq, tokens, Dk]; none: no attention
  Rows rows;                        ///< the result of cache_write
  Ledger ledger;                    ///< the ledger before the write
  int key_dim;                      ///< Dk
  int tokens;                       ///< number of tokens just written
  int offset;                       ///< tokens seen before them
  float scale = 1.0f;
  Mask mask = {};
  std::optional<mx::array> sinks = std::nullopt; ///< [Hq]
  /// What queries read besides the rows, in one softmax with them.
  std::optional<Elsewhere> elsewhere = std::nullopt;
};

struct Attended {
  std::optional<mx::array> out; ///< [B, Hq, tokens, Dv] in the dtype of the queries
  Rows rows;                    ///< the old rows, or the new buffers of a rearranged chunk
  Ledger ledger;
};

/// Throws std::invalid_argument if arguments of cache_attend contradict each other.
void check_attend(const AttendArguments& arguments, const CacheConfig& config);

/// Computes the attention of the newest tokens over the rows in use, and the next ledger.
/// If several tokens overflow C, eviction follows after their attention. Without queries,
/// scores stay as they are. Expects arguments that check_attend accepts.
Attended cache_attend(
    const AttendArguments& arguments, const CacheConfig& config, mx::StreamOrDevice s = {});

/// Attention [B, Hq, L, Dv] of the newest L tokens over the first `length` rows of a buffer
/// of a cache that keeps every token: without scores and without a ledger. Expects arguments
/// that check_attention accepts.
mx::array full_attention(
    const mx::array& queries,
    const mx::array& rows,
    int length,
    int key_dim,
    const RowFormat& format,
    float scale,
    const Mask& mask = {},
    const std::optional<mx::array>& sinks = std::nullopt,
    mx::StreamOrDevice s = {});

} // namespace h2o
