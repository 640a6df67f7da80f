#include "fallback.h"

#include <cmath>
#include <limits>

#include "mlx/ops.h"
#include "mlx_version.h"
#include "row_layout.h"

namespace h2o::fallback {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Inclusive sums along axis 2. Does not scan an axis of one element, because the CPU scan
/// of MLX 0.31.1 does not write its output for some of these arrays.
mx::array running_sum(const mx::array& a, bool reverse, mx::StreamOrDevice s) {
  return a.shape(2) == 1 ? a : mx::cumsum(a, 2, reverse, true, s);
}

/// Softmax over the visible rows, 0 for others; sinks count in the sum.
mx::array probabilities(
    const mx::array& logits, const std::optional<mx::array>& sinks, mx::StreamOrDevice s) {
  auto seen = mx::not_equal(logits, mx::array(lowest), s);
  auto most = mx::max(logits, -1, true, s);
  if (sinks) {
    auto sink = mx::reshape(mx::astype(*sinks, mx::float32, s), {1, -1, 1, 1}, s);
    most = mx::maximum(most, sink, s);
    auto weights =
        mx::where(seen, mx::exp(mx::subtract(logits, most, s), s), mx::array(0.0f), s);
    auto sum =
        mx::add(mx::sum(weights, -1, true, s), mx::exp(mx::subtract(sink, most, s), s), s);
    return mx::divide(weights, sum, s);
  }
  auto weights =
      mx::where(seen, mx::exp(mx::subtract(logits, most, s), s), mx::array(0.0f), s);
  auto sum = mx::sum(weights, -1, true, s);
  return mx::where(
      mx::equal(sum, mx::array(0.0f), s), mx::array(0.0f), mx::divide(weights, sum, s), s);
}

} // namespace

mx::array unit_keys(const mx::array& keys, mx::StreamOrDevice s) {
  auto k = mx::astype(keys, mx::float32, s);
  auto norm = mx::sqrt(mx::sum(mx::square(k, s), -1, true, s), s);
  auto usable =
      mx::logical_and(mx::greater(norm, mx::array(0.0f), s), mx::isfinite(norm, s), s);
  return mx::where(usable, mx::divide(k, norm, s), mx::array(0.0f), s);
}

mx::array pick_rows(const mx::array& a, const mx::array& indices, mx::StreamOrDevice s) {
  if (a.ndim() == 3) {
    return mx::take_along_axis(a, indices, 2, s);
  }
  auto spread = mx::broadcast_to(
      mx::expand_dims(indices, 3, s),
      {a.shape(0), a.shape(1), indices.shape(2), a.shape(3)}, s);
  return mx::take_along_axis(a, spread, 2, s);
}

mx::array resized(
    const mx::array& a, int size, const mx::array& empty, mx::StreamOrDevice s) {
  if (a.shape(2) >= size) {
    return sliced(a, 2, 0, size, s);
  }
  auto shape = a.shape();
  shape[2] = size - shape[2];
  return mx::concatenate({a, mx::full(shape, empty, a.dtype(), s)}, 2, s);
}

mx::array masked_logits(
    const mx::array& queries,
    const mx::array& keys,
    float scale,
    const Mask& mask,
    int count,
    bool low_bias_hides,
    mx::StreamOrDevice s) {
  int batch = queries.shape(0), heads = queries.shape(1), tokens = queries.shape(2);
  int kv_heads = keys.shape(1), rows = keys.shape(2);
  auto q = mx::astype(sliced(queries, 2, tokens - count, tokens, s), mx::float32, s);
  q = mx::multiply(q, mx::array(scale), s);
  q = mx::reshape(q, {batch, kv_heads, heads / kv_heads * count, keys.shape(3)}, s);
  auto k = mx::swapaxes(mx::astype(keys, mx::float32, s), 2, 3, s);
  auto logits = mx::reshape(mx::matmul(q, k, s), {batch, heads, count, rows}, s);
  if (mask.causal) {
    auto query = mx::expand_dims(mx::arange(rows - count, rows, s), 1, s);
    return mx::where(
        mx::greater_equal(query, mx::arange(rows, s), s), logits, mx::array(lowest), s);
  }
  if (!mask.values) {
    return logits;
  }
  auto values = mx::broadcast_to(*mask.values, {batch, heads, tokens, rows}, s);
  values = sliced(values, 2, tokens - count, tokens, s);
  if (values.dtype() == mx::bool_) {
    return mx::where(values, logits, mx::array(lowest), s);
  }
  auto bias = mx::astype(values, mx::float32, s);
  auto sum = mx::add(logits, bias, s);
  auto hidden = mx::less_equal(sum, mx::array(lowest), s);
  if (low_bias_hides) {
    float hiding_bias = mask.values->dtype() == mx::float16 ? -32752.0f : -1e9f;
    hidden = mx::logical_or(hidden, mx::less_equal(bias, mx::array(hiding_bias), s), s);
  }
  return mx::where(hidden, mx::array(lowest), sum, s);
}

mx::array attention(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    float scale,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    mx::StreamOrDevice s) {
  auto arrays = mask.values;
  if (arrays && arrays->dtype() != mx::bool_) {
    arrays = mx::astype(*arrays, queries.dtype(), s);
  }
  auto all_sinks = sinks;
  if (all_sinks) {
    all_sinks = mx::astype(*all_sinks, queries.dtype(), s);
  }
  auto out = mlx_attention(
      queries, mx::astype(keys, queries.dtype(), s), mx::astype(values, queries.dtype(), s),
      scale, mask.causal ? "causal" : "", arrays, all_sinks, s);
  return mx::astype(out, queries.dtype(), s);
}

mx::array observed_scores(
    const mx::array& scores,
    const mx::array& logits,
    const std::optional<mx::array>& sinks,
    const Policy& policy,
    mx::StreamOrDevice s) {
  int batch = logits.shape(0), kv_heads = scores.shape(1);
  int group = logits.shape(1) / kv_heads, window = logits.shape(2), rows = logits.shape(3);
  auto seen_by_head = mx::not_equal(logits, mx::array(lowest), s);
  auto looked_at = policy.score == Score::abs_logit
                       ? mx::where(seen_by_head, mx::abs(logits, s), mx::array(0.0f), s)
                       : probabilities(logits, sinks, s);
  mx::Shape grouped{batch, kv_heads, group, window, rows};
  auto m = mx::mean(mx::reshape(looked_at, grouped, s), 2, false, s);
  auto seen = mx::any(mx::reshape(seen_by_head, grouped, s), 2, false, s);
  seen = mx::logical_and(seen, mx::isfinite(m, s), s);
  m = mx::where(seen, m, mx::array(0.0f), s);

  auto counts = mx::astype(seen, mx::int32, s);
  auto later = mx::subtract(running_sum(counts, true, s), counts, s);
  auto earlier = mx::subtract(running_sum(counts, false, s), counts, s);
  auto total = mx::sum(counts, 2, false, s);
  auto decay = mx::array(policy.decay);
  auto faded = mx::where(
      seen, mx::multiply(m, mx::power(decay, mx::astype(later, mx::float32, s), s), s),
      mx::array(0.0f), s);
  auto is_new = mx::less(scores, mx::array(0.0f), s);
  auto old = mx::where(
      is_new, mx::array(0.0f),
      mx::multiply(scores, mx::power(decay, mx::astype(total, mx::float32, s), s), s), s);
  auto updated = old;
  if (policy.score == Score::peak) {
    updated = mx::maximum(old, mx::max(faded, 2, false, s), s);
  } else {
    auto first_ever = mx::logical_and(
        mx::expand_dims(is_new, 2, s), mx::equal(earlier, mx::array(0), s), s);
    auto weight = mx::where(first_ever, mx::array(1.0f), mx::array(1.0f - policy.decay), s);
    updated = mx::add(old, mx::sum(mx::multiply(faded, weight, s), 2, false, s), s);
  }
  return mx::where(mx::greater(total, mx::array(0), s), updated, scores, s);
}

mx::array importance(
    const Entries& entries, const Policy& policy, int recent_from, mx::StreamOrDevice s) {
  auto value = entries.scores;
  if (policy.novelty != 0.0f) {
    auto most = mx::max(entries.scores, -1, true, s);
    auto counts = mx::logical_and(
        mx::greater(entries.scores, mx::array(0.0f), s),
        mx::greater(most, mx::array(0.0f), s), s);
    auto share = mx::where(counts, mx::divide(entries.scores, most, s), mx::array(0.0f), s);
    value = mx::add(share, mx::multiply(entries.novelty, mx::array(policy.novelty), s), s);
  }
  const auto& position = entries.positions;
  auto stays = mx::logical_or(
      mx::less(position, mx::array(policy.sink_size), s),
      mx::greater_equal(position, mx::array(recent_from), s), s);
  for (auto [begin, end] : policy.pinned) {
    stays = mx::logical_or(
        stays,
        mx::logical_and(
            mx::greater_equal(position, mx::array(begin), s),
            mx::less(position, mx::array(end), s), s),
        s);
  }
  if (entries.held) {
    stays = mx::logical_or(stays, *entries.held, s);
  }
  return mx::where(stays, mx::array(infinity), value, s);
}

mx::array eviction_order(
    const mx::array& importance, const mx::array& positions, mx::StreamOrDevice s) {
  auto by_position = mx::argsort(positions, -1, s);
  auto by_importance =
      mx::argsort(mx::take_along_axis(importance, by_position, -1, s), -1, s);
  return mx::take_along_axis(by_position, by_importance, -1, s);
}

Entries picked(const Entries& entries, const mx::array& indices, mx::StreamOrDevice s) {
  return {
      pick_rows(entries.scores, indices, s), pick_rows(entries.positions, indices, s),
      pick_rows(entries.novelty, indices, s),
      entries.held ? std::make_optional(pick_rows(*entries.held, indices, s))
                   : std::nullopt};
}

/// `typical_cosine` for each of the new tokens, sum_square [B, Hkv, L].
mx::array typical_cosines(const mx::array& sum_square, int offset, mx::StreamOrDevice s) {
  const int tokens = sum_square.shape(2);
  auto seen = mx::astype(mx::arange(offset + 1, offset + 1 + tokens, s), mx::float32, s);
  auto pairs = mx::maximum(
      mx::array(1.0f), mx::multiply(seen, mx::subtract(seen, mx::array(1.0f), s), s), s);
  auto beyond = mx::maximum(mx::subtract(sum_square, seen, s), mx::array(0.0f), s);
  return mx::sqrt(mx::divide(beyond, pairs, s), s);
}

mx::array key_sums(const mx::array& unit, const mx::array& key_sum, mx::StreamOrDevice s) {
  return mx::add(mx::expand_dims(key_sum, 2, s), running_sum(unit, false, s), s);
}

mx::array key_novelty(
    const mx::array& keys,
    const mx::array& unit,
    const mx::array& sums,
    int offset,
    const Policy& policy,
    mx::StreamOrDevice s) {
  const float margin = policy.novelty_margin;
  auto sum_square = mx::sum(mx::square(sums, s), -1, false, s);
  auto sum_norm = mx::sqrt(sum_square, s);
  auto along = mx::divide(mx::sum(mx::multiply(unit, sums, s), -1, false, s), sum_norm, s);
  along = mx::where(mx::greater(sum_norm, mx::array(0.0f), s), along, mx::array(0.0f), s);
  auto novelty = mx::subtract(mx::array(1.0f), along, s);
  if (margin > 0.0f) {
    auto typical = typical_cosines(sum_square, offset, s);
    novelty = mx::maximum(
        mx::subtract(mx::subtract(typical, along, s), mx::array(margin), s),
        mx::array(0.0f), s);
  }
  auto key_norm = mx::sum(mx::square(mx::astype(keys, mx::float32, s), s), -1, false, s);
  return mx::where(mx::isfinite(key_norm, s), novelty, mx::array(0.0f), s);
}

std::pair<mx::array, mx::array> entered_keys(
    const mx::array& new_keys,
    const mx::array& key_sum,
    int offset,
    const Policy& policy,
    mx::StreamOrDevice s) {
  const int tokens = new_keys.shape(2);
  auto unit = unit_keys(new_keys, s);
  auto sums = key_sums(unit, key_sum, s);
  return {
      key_novelty(new_keys, unit, sums, offset, policy, s),
      mx::squeeze(sliced(sums, 2, tokens - 1, tokens, s), 2, s)};
}

} // namespace h2o::fallback
