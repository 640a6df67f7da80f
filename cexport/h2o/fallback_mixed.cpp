#include <algorithm>

#include "fallback.h"
#include "fallback_ops.h"
#include "mlx/ops.h"
#include "row_layout.h"

namespace h2o::fallback {

namespace {

/// Rows of one format in another; quantised anew only where they differ.
mx::array converted(
    const mx::array& rows,
    int key_dim,
    const RowFormat& from,
    const RowFormat& to,
    int width, // of a row in the new format
    mx::StreamOrDevice s) {
  if (from.key_bits == to.key_bits) {
    return rows;
  }
  if (rows.shape(2) == 0) {
    return mx::zeros({rows.shape(0), rows.shape(1), 0, width}, rows_dtype(to, to.dtype), s);
  }
  auto [keys, values] = unpacked_rows(rows, from, key_dim, mx::float32, s);
  return packed_rows(mx::astype(keys, to.dtype, s), mx::astype(values, to.dtype, s), to, s);
}

/// The entries of the pool, the ring's slots and, in a chunk, the new tokens behind them.
struct Working {
  const MixedConfig& config;
  int tokens;
  int offset;
  int pooled; // rows of the pool
  mx::StreamOrDevice s;

  mx::array entered(
      const mx::array& old, const mx::array& fresh, const mx::array& victim) const {
    const int slots = config.ring_rows(), size = config.pool_rows();
    const int old_ring = ring_length(config, offset);
    auto in_pool = take_rows(old, 2, 0, pooled, s);
    auto in_ring = take_rows(old, 2, size, size + old_ring, s);
    if (tokens > 1 || offset < slots) {
      return mx::concatenate({in_pool, in_ring, fresh}, 2, s);
    }
    const int slot = offset % slots, filled = pool_length(config, offset);
    auto target = filled < size ? mx::array(filled) : mx::expand_dims(victim, 2, s);
    auto leaving = take_rows(in_ring, 2, slot, slot + 1, s);
    in_pool = mx::where(mx::equal(mx::arange(pooled, s), target, s), leaving, in_pool, s);
    auto taken = mx::equal(mx::arange(slots, s), mx::array(slot), s);
    return mx::concatenate({in_pool, mx::where(taken, fresh, in_ring, s)}, 2, s);
  }
};

/// `rows` with spare rows up to `capacity`.
mx::array padded(const mx::array& rows, int capacity, mx::StreamOrDevice s) {
  if (rows.shape(2) >= capacity) {
    return rows;
  }
  auto shape = rows.shape();
  shape[2] = capacity - shape[2];
  return mx::concatenate({rows, mx::zeros(shape, rows.dtype(), s)}, 2, s);
}

/// Which entries, by index [B, Hkv, *], a settled chunk leaves in the pool and in the
/// ring's slots.
struct Kept {
  mx::array pool;
  mx::array ring;
};

Kept kept_entries(
    const Entries& entries, const MixedConfig& config, int seen, mx::StreamOrDevice s) {
  const CacheConfig& policy = config.policy;
  const int count = entries.positions.shape(2), slots = config.ring_rows();
  const auto& positions = entries.positions;
  auto index = mx::broadcast_to(mx::arange(count, s), positions.shape(), s);
  auto recent = mx::greater_equal(positions, mx::array(seen - slots), s);
  auto to_pool = mx::logical_not(recent, s);
  if (count > policy.max_size) {
    auto order = eviction_order(
        importance(entries, policy, seen - policy.recent_budget, s), positions, s);
    auto rank = mx::argsort(order, -1, s);
    auto stays = mx::greater_equal(
        mx::astype(rank, mx::int32, s), mx::array(count - policy.max_size), s);
    to_pool = mx::logical_and(to_pool, stays, s);
  }
  auto in_pool = mx::sort(mx::where(to_pool, index, mx::array(count), s), -1, s);
  auto slot_of =
      mx::where(recent, mx::remainder(positions, mx::array(slots), s), mx::array(slots), s);
  auto by_slot = mx::astype(mx::argsort(slot_of, -1, s), mx::int32, s);
  return {
      take_rows(in_pool, 2, 0, pool_length(config, seen), s),
      take_rows(by_slot, 2, 0, ring_length(config, seen), s)};
}

MixedRows settled(
    const MixedRows& rows,
    const Kept& kept,
    int pooled,
    int ringed,
    int key_dim,
    const MixedConfig& config,
    mx::StreamOrDevice s) {
  const auto pool_format = config.pool_format(), ring_format = config.ring_format();
  auto pool = take_rows(rows.pool, 2, 0, pooled, s);
  auto ring = take_rows(rows.ring, 2, 0, ringed, s);
  auto gather = [&](const mx::array& in_pool, const mx::array& in_ring,
                    const mx::array& chosen, int most) {
    const int count = chosen.shape(2);
    auto taken = pick_rows(mx::concatenate({in_pool, in_ring}, 2, s), chosen, s);
    return padded(taken, grown_capacity(0, std::max(1, count), most), s);
  };
  return {
      gather(
          pool, converted(ring, key_dim, ring_format, pool_format, rows.pool.shape(3), s),
          kept.pool, config.pool_rows()),
      gather(
          converted(pool, key_dim, pool_format, ring_format, rows.ring.shape(3), s), ring,
          kept.ring, config.ring_rows())};
}

} // namespace

MixedAttended mixed_cache_attend(
    const std::optional<mx::array>& queries,
    const MixedRows& rows,
    const Ledger& ledger,
    int tokens,
    int offset,
    int key_dim,
    int value_dim,
    float scale,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    const MixedConfig& config,
    mx::StreamOrDevice s) {
  const CacheConfig& policy = config.policy;
  const int seen = offset + tokens, slots = config.ring_rows();
  const bool single = tokens == 1;
  const int pooled = pool_length(config, single ? seen : offset);
  const int old_ring = ring_length(config, offset);
  const int ringed = single ? ring_length(config, seen) : old_ring + tokens;

  std::vector<mx::array> all_keys, all_values;
  auto widen = [&](const mx::array& a, int count, const RowFormat& format) {
    if (count == 0) {
      mx::Shape shape{a.shape(0), a.shape(1), 0, key_dim};
      all_keys.push_back(mx::zeros(shape, mx::float32, s));
      shape[3] = value_dim;
      all_values.push_back(mx::zeros(shape, mx::float32, s));
      return;
    }
    auto [k, v] =
        unpacked_rows(take_rows(a, 2, 0, count, s), format, key_dim, mx::float32, s);
    all_keys.push_back(mx::astype(k, mx::float32, s));
    all_values.push_back(mx::astype(v, mx::float32, s));
  };
  widen(rows.pool, pooled, config.pool_format());
  widen(rows.ring, ringed, config.ring_format());
  auto keys = mx::concatenate(all_keys, 2, s);
  auto values = mx::concatenate(all_values, 2, s);

  const int first = single ? offset % slots : old_ring;
  auto new_keys = take_rows(all_keys[1], 2, first, first + tokens, s);
  auto [novelty, key_sum] =
      entered_keys(new_keys, ledger.key_sum, offset, policy.novelty_margin, s);
  Working working{config, tokens, offset, pooled, s};
  auto entered = [&](const mx::array& old, const mx::array& fresh) {
    return working.entered(old, fresh, ledger.victim);
  };
  auto new_positions = mx::broadcast_to(mx::arange(offset, seen, s), novelty.shape(), s);
  Entries entries{
      entered(ledger.scores, mx::full(novelty.shape(), -1.0f, mx::float32, s)),
      entered(ledger.positions, new_positions), entered(ledger.novelty, novelty)};

  MixedAttended result{std::nullopt, rows, ledger};
  if (queries) {
    result.out = attention(*queries, keys, values, scale, mask, sinks, s);
    const int window = std::min(tokens, policy.observation_window);
    auto logits = masked_logits(*queries, keys, scale, mask, window, true, s);
    entries.scores = observed_scores(entries.scores, logits, sinks, policy, s);
  }
  if (!single) {
    auto kept = kept_entries(entries, config, seen, s);
    result.rows = settled(rows, kept, pooled, ringed, key_dim, config, s);
    entries = picked(entries, mx::concatenate({kept.pool, kept.ring}, 2, s), s);
  }

  const int kept_pool = pool_length(config, seen), kept = entries.scores.shape(2);
  auto saved = [&](const mx::array& entry, const mx::array& empty) {
    auto in_pool = take_rows(entry, 2, 0, kept_pool, s);
    auto in_ring = take_rows(entry, 2, kept_pool, kept, s);
    return mx::concatenate(
        {resized(in_pool, config.pool_rows(), empty, s), resized(in_ring, slots, empty, s)},
        2, s);
  };
  Entries stored{
      saved(entries.scores, mx::array(-1.0f)), saved(entries.positions, mx::array(-1)),
      saved(entries.novelty, mx::array(0.0f))};
  auto victim = mx::full(ledger.victim.shape(), -1, mx::int32, s);
  if (seen >= policy.max_size) {
    auto order = eviction_order(
        importance(stored, policy, seen + 1 - policy.recent_budget, s), stored.positions,
        s);
    victim = mx::astype(mx::squeeze(take_rows(order, 2, 0, 1, s), 2, s), mx::int32, s);
  }
  result.ledger = {stored.scores, stored.positions, stored.novelty, key_sum, victim};
  return result;
}

} // namespace h2o::fallback
