#include "fallback.h"

#include <algorithm>

#include "fallback_ops.h"
#include "mlx/ops.h"
#include "row_layout.h"

namespace h2o::fallback {

std::pair<mx::array, mx::array> scaled_dot_product_attention_with_scores(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    float scale,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    mx::StreamOrDevice s) {
  auto logits = masked_logits(queries, keys, scale, mask, queries.shape(2), false, s);
  return {
      attention(queries, keys, values, scale, mask, sinks, s),
      mx::reshape(logits, {-1, keys.shape(2)}, s)};
}

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
    mx::StreamOrDevice s) {
  const bool overwrote = config.overwrites(tokens, length);
  const int count = overwrote ? length : length + tokens;
  const int key_dim = ledger.key_sum.shape(2);
  auto used = take_rows(rows, 2, 0, count, s);
  auto [keys, values] = unpacked_rows(used, config.format, key_dim, mx::float32, s);

  auto new_keys = overwrote ? pick_rows(keys, mx::expand_dims(ledger.victim, 2, s), s)
                            : take_rows(keys, 2, length, count, s);
  auto [new_novelty, key_sum] =
      entered_keys(new_keys, ledger.key_sum, offset, config.novelty_margin, s);
  auto new_positions =
      mx::broadcast_to(mx::arange(offset, offset + tokens, s), new_novelty.shape(), s);
  auto entered = [&](const mx::array& old, const mx::array& fresh) {
    if (overwrote) {
      auto here = mx::equal(mx::arange(count, s), mx::expand_dims(ledger.victim, 2, s), s);
      return mx::where(here, fresh, old, s);
    }
    return mx::concatenate({take_rows(old, 2, 0, length, s), fresh}, 2, s);
  };
  Entries entries{
      entered(ledger.scores, mx::full(new_novelty.shape(), -1.0f, mx::float32, s)),
      entered(ledger.positions, new_positions), entered(ledger.novelty, new_novelty)};

  Attended result{std::nullopt, rows, ledger};
  if (queries) {
    result.out = attention(*queries, keys, values, scale, mask, sinks, s);
    int window = std::min(tokens, config.observation_window);
    auto logits = masked_logits(*queries, keys, scale, mask, window, true, s);
    entries.scores = observed_scores(entries.scores, logits, sinks, config, s);
  }

  const int seen = offset + tokens, kept = std::min(count, config.max_size);
  if (count > kept) {
    auto order = eviction_order(
        importance(entries, config, seen - config.recent_budget, s), entries.positions, s);
    auto stay = mx::sort(take_rows(order, 2, count - kept, count, s), -1, s);
    entries = picked(entries, stay, s);
    result.rows = pick_rows(used, stay, s);
  }
  auto victim = mx::full(ledger.victim.shape(), -1, mx::int32, s);
  if (kept == config.max_size) {
    auto order = eviction_order(
        importance(entries, config, seen + 1 - config.recent_budget, s), entries.positions,
        s);
    victim = mx::astype(mx::squeeze(take_rows(order, 2, 0, 1, s), 2, s), mx::int32, s);
  }
  result.ledger = {
      resized(entries.scores, config.max_size, mx::array(-1.0f), s),
      resized(entries.positions, config.max_size, mx::array(-1), s),
      resized(entries.novelty, config.max_size, mx::array(0.0f), s), key_sum, victim};
  return result;
}

} // namespace h2o::fallback
