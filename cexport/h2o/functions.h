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

/// The same over keys and values in MLX's affine quantization: each is words uint32
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
  /// bool [B, Hkv, C], the rows that no eviction takes; none in a cache without recall. Only
  /// a chunk that is sorted into new rows gives another array.
  std::optional<mx::array> held = std::nullopt;
};

/// The ledger of an empty cache.
Ledger make_ledger(
    int batch,
    int kv_heads,
    int key_dim,
    const CacheConfig& config,
    mx::StreamOrDevice s = {});

/// The buffers of a cache; those of quantized rows are uint32.
struct Rows {
  mx::array pool;                               ///< [B, Hkv, capacity, row]
  std::optional<mx::array> ring = std::nullopt; ///< the same, if the format has a ring

  const mx::array& newest() const { ///< where new tokens are written
    return ring ? *ring : pool;
  }
};

/// The ledger after all rows from `length` on were dropped again. Only right for a cache
/// without a ring that has not evicted, whose rows are its positions.
Ledger trim_ledger(
    const Rows& rows,
    const Ledger& ledger,
    int length,
    const CacheConfig& config,
    mx::StreamOrDevice s = {});

/// Keys [B, Hkv, N, Dk] and values [B, Hkv, N, Dv] of the rows in use, those of the pool
/// first: views of dense rows, else widened to the format's dtype. `tokens` are those just
/// written whose attention is outstanding, `offset` the ones seen before them.
std::pair<mx::array, mx::array> cache_fetch(
    const Rows& rows,
    int key_dim,
    int offset,
    int tokens,
    const CacheConfig& config,
    mx::StreamOrDevice s = {});

struct WriteArguments {
  std::optional<Rows> rows; ///< none for an empty cache
  mx::array keys;           ///< [B, Hkv, L, Dk]
  mx::array values;         ///< [B, Hkv, L, Dv]
  mx::array victim;         ///< the ledger's
  int offset;               ///< tokens seen before
  bool copy = false;        ///< write into copies of `rows`
};

/// The rows with new tokens put in, which grow in steps of 256. See CacheStep for where
/// they go.
///
/// The result shares the buffers of `rows` unless they must grow or `copy` is true:
/// nothing else may then read `rows` or a view of them.
Rows cache_write(
    const WriteArguments& arguments, const CacheConfig& config, mx::StreamOrDevice s = {});

struct AttendArguments {
  std::optional<mx::array> queries; ///< [B, Hq, tokens, Dk]; none: attended elsewhere
  Rows rows;                        ///< as cache_write returned them
  Ledger ledger;                    ///< from before the write
  int tokens;                       ///< the newest, just written
  int offset;                       ///< tokens seen before them
  float scale = 1.0f;
  Mask mask = {};
  std::optional<mx::array> sinks = std::nullopt; ///< [Hq]
};

struct Attended {
  std::optional<mx::array> out; ///< [B, Hq, tokens, Dv] in the dtype of the queries
  Rows rows; ///< the given ones, or new ones that a chunk was sorted into
  Ledger ledger;
};

/// The attention of the newest tokens over the rows in use, and the ledger that follows
/// from it. Several tokens that overflow C are attended first and evicted from after.
/// Without queries no row is observed.
Attended cache_attend(
    const AttendArguments& arguments, const CacheConfig& config, mx::StreamOrDevice s = {});

} // namespace h2o
