#include "fallback.h"

#include <algorithm>

#include "cache_step.h"
#include "mlx/ops.h"
#include "row_layout.h"

namespace h2o::fallback {

namespace {

using Vectors = std::pair<mx::array, mx::array>; // keys and values

/// The inputs of a step of a cache.
struct Step : CacheStep {
  const AttendArguments& call;
  mx::StreamOrDevice s;

  const RowFormat& format() const {
    return config.format;
  }
  int key_dim() const {
    return call.ledger.key_sum.shape(2);
  }
  /// The ledger's victim [B, Hkv, 1], clipped to the rows, because a hostile file may
  /// contain any number. With a ring it may be an entry of the ring: the token that
  /// leaves it.
  mx::array victim() const {
    auto row = mx::maximum(call.ledger.victim, mx::array(0), s);
    if (!config.format.has_ring()) {
      row = mx::minimum(row, mx::array(config.max_size - 1), s);
    }
    return mx::expand_dims(row, 2, s);
  }
};

/// Keys and values of a buffer's rows in use; in float32 where they are quantized.
Vectors widened(
    const Step& step, const mx::array& rows, int count, const RowFormat& format) {
  return unpacked_rows(
      sliced(rows, 2, 0, count, step.s), format, step.key_dim(), mx::float32, step.s);
}

/// Keys and values of the pool's rows, then of the ring's, in float32.
Vectors joined(const Step& step, const Vectors& ring) {
  auto wide = [&](const mx::array& a) {
    return mx::astype(a, mx::float32, step.s);
  };
  if (step.pool_used() == 0) {
    return {wide(ring.first), wide(ring.second)};
  }
  auto pool = widened(step, step.call.rows.pool, step.pool_used(), step.format());
  return {
      mx::concatenate({wide(pool.first), wide(ring.first)}, 2, step.s),
      mx::concatenate({wide(pool.second), wide(ring.second)}, 2, step.s)};
}

/// The ledger's entries in the order of the rows that attention reads, with `fresh`
/// entries for the new tokens.
mx::array entered(const Step& step, const mx::array& old, const mx::array& fresh) {
  const auto& s = step.s;
  const int size = step.config.pool_rows(), pool_used = step.pool_used();
  const int old_pool = step.pool_length(step.offset);
  const int old_ring = step.ring_length(step.offset), row = step.first_row();
  const auto victim = step.victim();
  if (row == over_victim) {
    return mx::where(mx::equal(mx::arange(size, s), victim, s), fresh, old, s);
  }
  if (!step.leaves_ring()) {
    std::vector<mx::array> parts{sliced(old, 2, 0, old_pool, s)};
    if (old_ring > 0) {
      parts.push_back(sliced(old, 2, size, size + old_ring, s));
    }
    parts.push_back(fresh);
    return mx::concatenate(parts, 2, s);
  }
  auto in_pool = sliced(old, 2, 0, pool_used, s);
  auto in_ring = sliced(old, 2, size, size + old_ring, s);
  auto target = old_pool < size ? mx::array(old_pool) : victim;
  auto leaving = sliced(in_ring, 2, row, row + 1, s);
  in_pool = mx::where(mx::equal(mx::arange(pool_used, s), target, s), leaving, in_pool, s);
  auto is_row = mx::equal(mx::arange(old_ring, s), mx::array(row), s);
  return mx::concatenate({in_pool, mx::where(is_row, fresh, in_ring, s)}, 2, s);
}

/// Indices [B, Hkv, *] of the rows that stay, for the pool and for the ring's slots.
struct Kept {
  mx::array pool;
  std::optional<mx::array> ring;
};

Kept kept_rows(const Step& step, const Entries& entries) {
  const auto& s = step.s;
  const CacheConfig& config = step.config;
  const auto& positions = entries.positions;
  const int count = positions.shape(2), seen = step.seen();
  const int pool_length = step.pool_length(seen);
  auto order = [&] {
    return eviction_order(
        importance(entries, config, seen - config.recent_budget, s), positions, s);
  };
  if (!config.format.has_ring()) {
    return {mx::sort(sliced(order(), 2, count - pool_length, count, s), -1, s), {}};
  }
  auto index = mx::broadcast_to(mx::arange(count, s), positions.shape(), s);
  auto recent = mx::greater_equal(positions, mx::array(seen - config.ring_rows()), s);
  auto to_pool = mx::logical_not(recent, s);
  if (count > config.max_size) {
    auto rank = mx::astype(mx::argsort(order(), -1, s), mx::int32, s);
    auto stays = mx::greater_equal(rank, mx::array(count - config.max_size), s);
    to_pool = mx::logical_and(to_pool, stays, s);
  }
  auto in_pool = mx::sort(mx::where(to_pool, index, mx::array(count), s), -1, s);
  in_pool = mx::minimum(
      in_pool, mx::array(count - 1), s); // a hostile file may have other positions
  const mx::array slots(config.ring_rows());
  auto slot_of = mx::where(recent, mx::remainder(positions, slots, s), slots, s);
  auto by_slot = mx::astype(mx::argsort(slot_of, -1, s), mx::int32, s);
  return {
      sliced(in_pool, 2, 0, pool_length, s),
      sliced(by_slot, 2, 0, step.ring_length(seen), s)};
}

/// Converts rows to another format; quantizes again only if the formats differ.
mx::array converted(
    const Step& step,
    const mx::array& rows,
    const RowFormat& from,
    const RowFormat& to,
    int width) { // elements of a row in the new format
  if (from.key_bits == to.key_bits) {
    return rows;
  }
  if (rows.shape(2) == 0) {
    auto dtype = to.is_dense() ? to.dtype : mx::uint32;
    return mx::zeros({rows.shape(0), rows.shape(1), 0, width}, dtype, step.s);
  }
  auto [keys, values] = widened(step, rows, rows.shape(2), from);
  return packed_rows(
      mx::astype(keys, to.dtype, step.s), mx::astype(values, to.dtype, step.s), to, step.s);
}

/// Makes new buffers with the rows that stay.
Rows rearranged(const Step& step, const Kept& kept) {
  const auto& s = step.s;
  const auto& rows = step.call.rows;
  auto pool = sliced(rows.pool, 2, 0, step.pool_used(), s);
  if (!kept.ring) {
    return {pick_rows(pool, kept.pool, s)};
  }
  const RowFormat& format = step.format();
  auto ring = sliced(*rows.ring, 2, 0, step.ring_used(), s);
  auto gather = [&](const mx::array& in_pool, const mx::array& in_ring,
                    const mx::array& indices, int most) {
    auto buffer = pick_rows(mx::concatenate({in_pool, in_ring}, 2, s), indices, s);
    const int count = indices.shape(2);
    const int capacity = grown_capacity(0, std::max(1, count), most);
    if (capacity == count) {
      return buffer;
    }
    auto spare = buffer.shape();
    spare[2] = capacity - count;
    return mx::concatenate({buffer, mx::zeros(spare, buffer.dtype(), s)}, 2, s);
  };
  return {
      gather(
          pool, converted(step, ring, format.ring(), format, rows.pool.shape(3)), kept.pool,
          step.config.pool_rows()),
      gather(
          converted(step, pool, format, format.ring(), rows.ring->shape(3)), ring,
          *kept.ring, step.config.ring_rows())};
}

/// Scatters entries to their places in the ledger; other places become `empty`.
mx::array saved(const Step& step, const mx::array& entries, const mx::array& empty) {
  const int pool_length = step.pool_length(step.seen()), slots = step.config.ring_rows();
  const int size = step.config.pool_rows();
  if (slots == 0) {
    return resized(entries, size, empty, step.s);
  }
  auto in_pool = sliced(entries, 2, 0, pool_length, step.s);
  auto in_ring = sliced(entries, 2, pool_length, entries.shape(2), step.s);
  return mx::concatenate(
      {resized(in_pool, size, empty, step.s), resized(in_ring, slots, empty, step.s)}, 2,
      step.s);
}

} // namespace

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
    const AttendArguments& call, const CacheConfig& config, mx::StreamOrDevice s) {
  const Step step{{config, call.offset, call.tokens}, call, s};
  const Ledger& ledger = call.ledger;
  const int seen = step.seen(), first = step.first_row();

  const auto& ring = call.rows.ring;
  const auto newest = ring ? widened(step, *ring, step.ring_used(), config.format.ring())
                           : widened(step, call.rows.pool, step.pool_used(), config.format);
  const auto [keys, values] = ring ? joined(step, newest) : newest;
  auto new_keys = first == over_victim
                      ? pick_rows(keys, step.victim(), s)
                      : sliced(newest.first, 2, first, first + call.tokens, s);
  auto [novelty, key_sum] = entered_keys(new_keys, ledger.key_sum, call.offset, config, s);
  auto positions = mx::broadcast_to(mx::arange(call.offset, seen, s), novelty.shape(), s);
  Entries entries{
      entered(step, ledger.scores, mx::full(novelty.shape(), -1.0f, mx::float32, s)),
      entered(step, ledger.positions, positions), entered(step, ledger.novelty, novelty)};

  if (ledger.held && step.rearranges()) {
    entries.held = entered(step, *ledger.held, mx::zeros(novelty.shape(), mx::bool_, s));
  }

  Attended result{std::nullopt, call.rows, ledger};
  if (call.queries) {
    const auto queries = as_stored(*call.queries, config.format, s);
    auto out = attention(queries, keys, values, call.scale, call.mask, call.sinks, s);
    result.out = as_given(out, config.format, s);
    const int window = std::min(call.tokens, config.observation_window);
    auto logits = masked_logits(queries, keys, call.scale, call.mask, window, true, s);
    entries.scores = observed_scores(entries.scores, logits, call.sinks, config, s);
  }
  if (step.rearranges()) {
    auto kept = kept_rows(step, entries);
    result.rows = rearranged(step, kept);
    entries = picked(
        entries, kept.ring ? mx::concatenate({kept.pool, *kept.ring}, 2, s) : kept.pool, s);
  }

  entries = {
      saved(step, entries.scores, mx::array(-1.0f)),
      saved(step, entries.positions, mx::array(-1)),
      saved(step, entries.novelty, mx::array(0.0f)),
      entries.held ? saved(step, *entries.held, mx::array(false)) : ledger.held};
  auto victim = mx::full(ledger.victim.shape(), -1, mx::int32, s);
  if (step.chooses_victim()) {
    auto order = eviction_order(
        importance(entries, config, seen + 1 - config.recent_budget, s), entries.positions,
        s);
    victim = mx::astype(mx::squeeze(sliced(order, 2, 0, 1, s), 2, s), mx::int32, s);
  }
  if (result.out) {
    // The next write depends on the victim, so it also waits until the values have been
    // read.
    victim = mx::depends({victim}, {*result.out})[0];
  }
  result.ledger = {entries.scores, entries.positions, entries.novelty, key_sum,
                   victim,         entries.held};
  return result;
}

} // namespace h2o::fallback
