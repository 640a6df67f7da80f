#pragma once

#include "functions.h"

/// The functions of functions.h as MLX operations. A GPU runs them for calls that our
/// kernels do not support. The results are the same; the logits of the observed queries
/// are stored in memory. Arguments are already checked.
namespace h2o::fallback {

std::pair<mx::array, mx::array> scaled_dot_product_attention_with_scores(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    float scale,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    mx::StreamOrDevice s);

Attended cache_attend(
    const AttendArguments& arguments, const CacheConfig& config, mx::StreamOrDevice s);

/// The ledger while a chunk is added, with any number of rows.
struct Entries {
  mx::array scores;
  mx::array positions;
  mx::array novelty;
  std::optional<mx::array> held = std::nullopt;
};

/// k/|k| in float32 for keys [..., Dk]; zero where |k| is zero or not finite.
mx::array unit_keys(const mx::array& keys, mx::StreamOrDevice s);

/// Takes rows of [..., N] or [..., N, R] by their indices [B, Hkv, M].
mx::array pick_rows(const mx::array& a, const mx::array& indices, mx::StreamOrDevice s);

/// Cuts or pads `a` [B, Hkv, *] to `size` rows.
mx::array resized(
    const mx::array& a, int size, const mx::array& empty, mx::StreamOrDevice s);

/// Logits [B, Hq, L, N] of the last `count` queries, hidden ones at the lowest
/// finite float.
mx::array masked_logits(
    const mx::array& queries,
    const mx::array& keys,
    float scale,
    const Mask& mask,
    int count,
    bool low_bias_hides,
    mx::StreamOrDevice s);

mx::array attention(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    float scale,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    mx::StreamOrDevice s);

/// Scores [B, Hkv, N] after the queries with the logits [B, Hq, W, N], in closed form
/// with decay a. An average weights the k-th of n observations of a row by (1-a) a^(n-k),
/// and its first observation ever by a^(n-1). A peak is the largest a^(n-k) m_k, where
/// m_k is the k-th observation.
mx::array observed_scores(
    const mx::array& scores,
    const mx::array& logits,
    const std::optional<mx::array>& sinks,
    const Policy& policy,
    mx::StreamOrDevice s);

/// Importance [B, Hkv, N], +infinity for protected rows.
mx::array importance(
    const Entries& entries, const Policy& policy, int recent_from, mx::StreamOrDevice s);

/// Row indices [B, Hkv, N] in order of importance, the least important first; ties by
/// position.
mx::array eviction_order(
    const mx::array& importance, const mx::array& positions, mx::StreamOrDevice s);

Entries picked(const Entries& entries, const mx::array& indices, mx::StreamOrDevice s);

/// For each of L new unit keys, the sum of all unit keys up to it: [B, Hkv, L, Dk].
/// `key_sum` is the sum before them.
mx::array key_sums(const mx::array& unit, const mx::array& key_sum, mx::StreamOrDevice s);

/// Novelty [B, Hkv, L] of the keys at positions from `offset` on, from their unit keys
/// and these sums.
mx::array key_novelty(
    const mx::array& keys,
    const mx::array& unit,
    const mx::array& sums,
    int offset,
    const Policy& policy,
    mx::StreamOrDevice s);

/// Novelty [B, Hkv, L] of new keys, and the sum [B, Hkv, Dk] of all unit keys after them.
std::pair<mx::array, mx::array> entered_keys(
    const mx::array& new_keys,
    const mx::array& key_sum,
    int offset,
    const Policy& policy,
    mx::StreamOrDevice s);

} // namespace h2o::fallback
