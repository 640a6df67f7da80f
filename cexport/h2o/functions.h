#pragma once

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

/// A mask as MLX's attention takes it: nothing, `causal`, or an array (bool:
/// true is seen; otherwise added to the logits) broadcastable to [B, Hq, L, N].
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

/// The same over keys and values in MLX's affine quantisation: each is words uint32
/// [B, Hkv, N, D * bits / 32], scales and biases [B, Hkv, N, D / group_size].
std::pair<mx::array, mx::array> scaled_dot_product_attention_quantized_with_scores(
    const mx::array& queries,
    const std::vector<mx::array>& keys,
    const std::vector<mx::array>& values,
    float scale,
    const RowFormat& format,
    const Mask& mask = {},
    const std::optional<mx::array>& sinks = std::nullopt,
    mx::StreamOrDevice s = {});

/// What is known about each row of a cache.
struct Ledger {
  mx::array scores;    ///< float32 [B, Hkv, C], -1 where not yet observed
  mx::array positions; ///< int32 [B, Hkv, C], -1 where the row is empty
  mx::array novelty;   ///< float32 [B, Hkv, C]
  mx::array key_sum;   ///< float32 [B, Hkv, Dk], the sum of all unit keys so far
  mx::array victim;    ///< int32 [B, Hkv], the row of the next token; -1 before C
};

/// The ledger of an empty cache.
Ledger make_ledger(
    int batch,
    int kv_heads,
    int key_dim,
    const CacheConfig& config,
    mx::StreamOrDevice s = {});

/// The ledger after all rows from `length` on were dropped again. Only right for
/// a cache that has not evicted, whose rows are its positions.
Ledger trim_ledger(
    const mx::array& rows,
    const Ledger& ledger,
    int length,
    const RowFormat& format,
    mx::StreamOrDevice s = {});

/// The buffer [B, Hkv, capacity, Dk + Dv] with keys [B, Hkv, L, Dk] and values
/// [B, Hkv, L, Dv] put in: one token over `victim` [B, Hkv] when `length` is C,
/// else after the `length` rows in use. No `rows` stands for an empty cache.
///
/// The result shares the buffer of `rows` unless it must grow or `copy` is true:
/// nothing else may then read `rows` or a view of it.
mx::array cache_write(
    const std::optional<mx::array>& rows,
    const mx::array& keys,
    const mx::array& values,
    const mx::array& victim,
    int length,
    const CacheConfig& config,
    bool copy = false,
    mx::StreamOrDevice s = {});

struct Attended {
  std::optional<mx::array> out; ///< [B, Hq, L, Dv] in the dtype of the queries
  mx::array rows;               ///< the given rows, or the C kept ones after an eviction
  Ledger ledger;
};

/// What the newest `tokens` of a cache have just been written for: their
/// attention over the rows in use, and the ledger that follows from it. Several
/// tokens that overflow C are attended first and evicted from after.
///
/// `offset` and `length` count the tokens seen and the rows in use before the
/// write. Without `queries` [B, Hq, tokens, Dk] no row is observed and `out` is
/// empty: for attention that was computed elsewhere.
Attended cache_attend(
    const std::optional<mx::array>& queries,
    const mx::array& rows,
    const Ledger& ledger,
    int tokens,
    int offset,
    int length,
    float scale,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    const CacheConfig& config,
    mx::StreamOrDevice s = {});

} // namespace h2o
