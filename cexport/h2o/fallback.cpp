#include "fallback.h"

#include <algorithm>
#include <cmath>

#include "cache_step.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"
#include "mlx_version.h"
#include "reading.h"
#include "row_layout.h"

namespace h2o::fallback {

namespace {

constexpr int64_t unpacked_bytes = 32 << 20; // of keys, values and logits at once

/// Inclusive sums along axis 2. Does not scan an axis of one element, because the CPU scan
/// of MLX 0.31.1 does not write its output for some of these arrays.
mx::array running_sum(const mx::array& a, bool reverse, mx::StreamOrDevice s) {
  return a.shape(2) == 1 ? a : mx::cumsum(a, 2, reverse, true, s);
}

/// Softmax [B, Hq, W, N] over the visible rows, 0 for others. `beside`, which broadcasts to
/// [B, Hq, W, 1], is a further logit that counts in the sum.
mx::array probabilities(
    const mx::array& logits, const std::optional<mx::array>& beside, mx::StreamOrDevice s) {
  auto seen = mx::not_equal(logits, mx::array(lowest), s);
  auto most = mx::max(logits, -1, true, s);
  if (beside) {
    most = mx::maximum(most, *beside, s);
  }
  auto weights =
      mx::where(seen, mx::exp(mx::subtract(logits, most, s), s), mx::array(0.0f), s);
  auto sum = mx::sum(weights, -1, true, s);
  if (beside) {
    sum = mx::add(sum, mx::exp(mx::subtract(*beside, most, s), s), s);
  }
  return mx::where(
      mx::equal(sum, mx::array(0.0f), s), mx::array(0.0f), mx::divide(weights, sum, s), s);
}

/// Logits [B, Hq, end - begin, N] of the queries from `begin` to before `end`, hidden ones at the
/// lowest finite float.
mx::array masked_logits(
    const mx::array& queries,
    const mx::array& keys,
    float scale,
    const Mask& mask,
    int begin,
    int end,
    bool low_bias_hides,
    mx::StreamOrDevice s) {
  int batch = queries.shape(0), heads = queries.shape(1), tokens = queries.shape(2);
  int kv_heads = keys.shape(1), rows = keys.shape(2), count = end - begin;
  auto q = mx::astype(sliced(queries, 2, begin, end, s), mx::float32, s);
  q = mx::multiply(q, mx::array(scale), s);
  q = mx::reshape(q, {batch, kv_heads, heads / kv_heads * count, keys.shape(3)}, s);
  auto k = mx::swapaxes(mx::astype(keys, mx::float32, s), 2, 3, s);
  auto logits = mx::reshape(mx::matmul(q, k, s), {batch, heads, count, rows}, s);
  if (mask.causal) {
    const int before = rows - tokens;
    auto query = mx::expand_dims(mx::arange(before + begin, before + end, s), 1, s);
    return mx::where(
        mx::greater_equal(query, mx::arange(rows, s), s), logits, mx::array(lowest), s);
  }
  if (!mask.values) {
    return logits;
  }
  auto values = mx::broadcast_to(*mask.values, {batch, heads, tokens, rows}, s);
  values = sliced(values, 2, begin, end, s);
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

} // namespace

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

mx::array full_attention(
    const mx::array& queries,
    const mx::array& rows,
    int length,
    int key_dim,
    const RowFormat& format,
    float scale,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    mx::StreamOrDevice s) {
  const int tokens = queries.shape(2), heads = rows.shape(1);
  const int group = queries.shape(1) / heads;
  const auto used = sliced(rows, 2, 0, length, s);
  auto attend = [&](int first, int last) { // KV heads
    auto of_queries = [&](const mx::array& a, int axis) {
      const bool has_heads = axis >= 0 && a.shape(axis) > 1;
      return has_heads ? sliced(a, axis, first * group, last * group, s) : a;
    };
    const auto [keys, values] =
        unpacked_rows(sliced(used, 1, first, last, s), format, key_dim, queries.dtype(), s);
    Mask seen{mask.causal};
    if (mask.values) {
      seen.values = of_queries(*mask.values, int(mask.values->ndim()) - 3);
    }
    std::optional<mx::array> own_sinks;
    if (sinks) {
      own_sinks = of_queries(*sinks, 0);
    }
    const auto stored_queries = as_stored(of_queries(queries, 1), format, s);
    const auto out = attention(stored_queries, keys, values, scale, seen, own_sinks, s);
    return as_given(out, format, s);
  };
  if (tokens <= draft_tokens) {
    return attend(0, heads);
  }
  // MLX allocates the results of all operations that it has queued. So the queue is emptied
  // first, and heads are unpacked a few at a time.
  mx::eval(queries, rows);
  const int64_t elements = int64_t(key_dim) * 2 + int64_t(group) * tokens;
  const int64_t head_bytes =
      elements * queries.shape(0) * length * int64_t(queries.itemsize());
  const int step = int(std::clamp<int64_t>(unpacked_bytes / head_bytes, 1, heads));
  std::vector<mx::array> outs;
  for (int first = 0; first < heads; first += step) {
    outs.push_back(attend(first, std::min(first + step, heads)));
    mx::eval(outs.back());
  }
  return mx::concatenate(outs, 1, s);
}

namespace {

/// The ledger while a chunk is added, with any number of rows.
struct Entries {
  mx::array scores;
  mx::array positions;
};

/// Takes rows of [..., N] or [..., N, R] by their indices [B, Hkv, M].
mx::array pick_rows(const mx::array& a, const mx::array& indices, mx::StreamOrDevice s) {
  if (a.ndim() == 3) {
    return mx::take_along_axis(a, indices, 2, s);
  }
  auto spread = mx::broadcast_to(
      mx::expand_dims(indices, 3, s),
      {a.shape(0), a.shape(1), indices.shape(2), a.shape(3)}, s);
  return mx::take_along_axis(a, spread, 2, s);
}

/// Cuts or pads `a` [B, Hkv, *] to `size` rows.
mx::array resized(
    const mx::array& a, int size, const mx::array& empty, mx::StreamOrDevice s) {
  if (a.shape(2) >= size) {
    return sliced(a, 2, 0, size, s);
  }
  auto shape = a.shape();
  shape[2] = size - shape[2];
  return mx::concatenate({a, mx::full(shape, empty, a.dtype(), s)}, 2, s);
}

mx::array last_queries(const mx::array& a, int count, mx::StreamOrDevice s) {
  return a.shape(2) == count ? a : sliced(a, 2, a.shape(2) - count, a.shape(2), s);
}

/// The logarithm of the sum of exp of what the last `count` queries see beside the rows, as far
/// as there is any: the logit `beside` and what they read elsewhere. [B, Hq, count, 1].
std::optional<mx::array> totals_beside(
    const std::optional<mx::array>& beside,
    const std::optional<Elsewhere>& elsewhere,
    int count,
    mx::StreamOrDevice s) {
  if (!elsewhere) {
    return beside;
  }
  auto total = mx::expand_dims(elsewhere->total, 3, s);
  auto shape = total.shape();
  shape[2] = count - shape[2];
  if (shape[2] > 0) {
    total = mx::concatenate({mx::full(shape, -infinity, mx::float32, s), total}, 2, s);
  }
  total = last_queries(total, count, s);
  return beside ? mx::logaddexp(total, *beside, s) : total;
}

/// The logarithm of the sum of exp of the logits [B, Hq, W, N] and of the logit `beside`:
/// [B, Hq, W].
mx::array totals_of_rows(
    const mx::array& logits, const std::optional<mx::array>& beside, mx::StreamOrDevice s) {
  auto visible =
      mx::where(mx::equal(logits, mx::array(lowest), s), mx::array(-infinity), logits, s);
  auto total = mx::logsumexp(visible, -1, true, s);
  return mx::squeeze(beside ? mx::logaddexp(total, *beside, s) : total, 3, s);
}

/// Attention's output `out` [B, Hq, L, Dv] to the rows, of which the last queries, whose
/// totals are `totals` [B, Hq, a], also read elsewhere.
mx::array with_elsewhere(
    const mx::array& out,
    const mx::array& totals,
    const Elsewhere& elsewhere,
    mx::StreamOrDevice s) {
  const int tokens = out.shape(2), reading = totals.shape(2);
  const auto own = mx::astype(last_queries(out, reading, s), mx::float32, s);
  const auto both = joined({own, totals}, elsewhere, s);
  const auto read = mx::astype(both.out, out.dtype(), s);
  if (reading == tokens) {
    return read;
  }
  return mx::concatenate({sliced(out, 2, 0, tokens - reading, s), read}, 2, s);
}

/// Scores [B, Hkv, N] after the queries with the logits [B, Hq, W, N], in closed form
/// with decay a. An average weights the k-th of n observations of a row by (1-a) a^(n-k),
/// and its first observation ever by a^(n-1). A peak is the largest a^(n-k) m_k, where
/// m_k is the k-th observation.
mx::array observed_scores(
    const mx::array& scores,
    const mx::array& logits,
    const std::optional<mx::array>& beside,
    const Policy& policy,
    mx::StreamOrDevice s) {
  int batch = logits.shape(0), kv_heads = scores.shape(1);
  int group = logits.shape(1) / kv_heads, window = logits.shape(2), rows = logits.shape(3);
  auto seen_by_head = mx::not_equal(logits, mx::array(lowest), s);
  auto looked_at = policy.score == Score::abs_logit
                       ? mx::where(seen_by_head, mx::abs(logits, s), mx::array(0.0f), s)
                       : probabilities(logits, beside, s);
  mx::Shape grouped{batch, kv_heads, group, window, rows};
  auto m = mx::mean(mx::reshape(looked_at, grouped, s), 2, false, s);
  auto seen = mx::any(mx::reshape(seen_by_head, grouped, s), 2, false, s);
  seen = mx::logical_and(seen, mx::isfinite(m, s), s);
  m = mx::where(seen, m, mx::array(0.0f), s);

  auto counts = mx::astype(seen, mx::int32, s);
  auto later = mx::subtract(running_sum(counts, true, s), counts, s);
  auto earlier = mx::subtract(running_sum(counts, false, s), counts, s);
  auto total = mx::sum(counts, 2, false, s);
  auto decay = mx::array(policy.decay());
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
    auto weight =
        mx::where(first_ever, mx::array(1.0f), mx::array(1.0f - policy.decay()), s);
    updated = mx::add(old, mx::sum(mx::multiply(faded, weight, s), 2, false, s), s);
  }
  return mx::where(mx::greater(total, mx::array(0), s), updated, scores, s);
}

/// Importance [B, Hkv, N], +infinity for protected rows.
mx::array importance(
    const Entries& entries, const Policy& policy, int recent_from, mx::StreamOrDevice s) {
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
  return mx::where(stays, mx::array(infinity), entries.scores, s);
}

/// Row indices [B, Hkv, N] in order of importance, the least important first; ties by
/// position.
mx::array eviction_order(
    const mx::array& importance, const mx::array& positions, mx::StreamOrDevice s) {
  auto by_position = mx::argsort(positions, -1, s);
  auto by_importance =
      mx::argsort(mx::take_along_axis(importance, by_position, -1, s), -1, s);
  return mx::take_along_axis(by_position, by_importance, -1, s);
}

Entries picked(const Entries& entries, const mx::array& indices, mx::StreamOrDevice s) {
  return {pick_rows(entries.scores, indices, s), pick_rows(entries.positions, indices, s)};
}

using Vectors = std::pair<mx::array, mx::array>; // keys and values

/// The inputs of a step of a cache.
struct Step : CacheStep {
  const AttendArguments& call;
  mx::StreamOrDevice s;

  const RowFormat& format() const {
    return config.format;
  }
  int key_dim() const {
    return call.key_dim;
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
  auto logits = masked_logits(queries, keys, scale, mask, 0, queries.shape(2), false, s);
  return {
      attention(queries, keys, values, scale, mask, sinks, s),
      mx::reshape(logits, {-1, keys.shape(2)}, s)};
}

Attended cache_attend(
    const AttendArguments& call, const CacheConfig& config, mx::StreamOrDevice s) {
  const Step step{{config, call.offset, call.tokens}, call, s};
  const Ledger& ledger = call.ledger;
  const int seen = step.seen();

  const auto& ring = call.rows.ring;
  const auto newest = ring ? widened(step, *ring, step.ring_used(), config.format.ring())
                           : widened(step, call.rows.pool, step.pool_used(), config.format);
  const auto [keys, values] = ring ? joined(step, newest) : newest;
  const mx::Shape fresh{call.rows.pool.shape(0), call.rows.pool.shape(1), call.tokens};
  auto positions = mx::broadcast_to(mx::arange(call.offset, seen, s), fresh, s);
  Entries entries{
      entered(step, ledger.scores, mx::full(fresh, -1.0f, mx::float32, s)),
      entered(step, ledger.positions, positions)};

  Attended result{std::nullopt, call.rows, ledger};
  if (call.queries) {
    const auto queries = as_stored(*call.queries, config.format, s);
    auto out = attention(queries, keys, values, call.scale, call.mask, call.sinks, s);
    const int observed = std::min(call.tokens, observation_window);
    auto logits_of = [&](int begin, int end) {
      return masked_logits(queries, keys, call.scale, call.mask, begin, end, true, s);
    };
    const auto logits = logits_of(call.tokens - observed, call.tokens);
    std::optional<mx::array> beside;
    if (call.sinks) {
      beside = mx::reshape(mx::astype(*call.sinks, mx::float32, s), {1, -1, 1, 1}, s);
    }
    if (call.elsewhere) {
      const int reading = call.elsewhere->total.shape(2);
      std::vector<mx::array> totals;
      // Blocks of queries are evaluated one after the other, because their logits are large.
      for (int begin = call.tokens - reading; begin < call.tokens - observed;) {
        const int end = std::min(begin + observation_window, call.tokens - observed);
        totals.push_back(totals_of_rows(logits_of(begin, end), beside, s));
        mx::eval(totals.back());
        begin = end;
      }
      const auto last = last_queries(logits, std::min(reading, observed), s);
      totals.push_back(totals_of_rows(last, beside, s));
      out = with_elsewhere(out, mx::concatenate(totals, 2, s), *call.elsewhere, s);
    }
    result.out = as_given(out, config.format, s);
    entries.scores = observed_scores(
        entries.scores, logits, totals_beside(beside, call.elsewhere, observed, s), config,
        s);
  }
  if (step.rearranges()) {
    auto kept = kept_rows(step, entries);
    result.rows = rearranged(step, kept);
    entries = picked(
        entries, kept.ring ? mx::concatenate({kept.pool, *kept.ring}, 2, s) : kept.pool, s);
  }

  entries = {
      saved(step, entries.scores, mx::array(-1.0f)),
      saved(step, entries.positions, mx::array(-1))};
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
  result.ledger = {entries.scores, entries.positions, victim};
  return result;
}

} // namespace h2o::fallback
