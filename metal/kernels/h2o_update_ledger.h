#pragma once

#include "h2o_types.h"

#include "h2o_parameters.h"
#include "h2o_ring.h"

constant bool h2o_has_sinks [[function_constant(4)]];
constant int h2o_score [[function_constant(11)]];
constant int h2o_mask_kind [[function_constant(12)]];
constant bool h2o_observes [[function_constant(13)]];
constant bool h2o_has_pins [[function_constant(14)]];
constant bool h2o_reads_mask = h2o_mask_kind != H2O_MASK_NONE;

/// Tests the bits, so that it does not depend on a compiler's assumptions about infinity
/// and NaN.
inline bool h2o_is_finite(float x) {
  return (as_type<uint>(x) << 1) < 0xff000000u;
}

inline bool h2o_is_hidden(float logit) {
  return as_type<uint>(logit) == 0xff7fffffu; // the lowest finite float
}

/// Whether the mask hides a row: a bool mask that is false, or an additive mask that is so
/// low that no logit matters.
inline bool h2o_mask_hides(const device uchar* mask, int64_t at) {
  if (h2o_mask_kind == H2O_MASK_BOOL) {
    return mask[at] == 0;
  }
  if (h2o_mask_kind == H2O_MASK_FLOAT32) {
    return reinterpret_cast<const device float*>(mask)[at] <= -1e9f;
  }
  if (h2o_mask_kind == H2O_MASK_FLOAT16) {
    return reinterpret_cast<const device half*>(mask)[at] <= half(-32752.0f);
  }
  return static_cast<float>(reinterpret_cast<const device bfloat16_t*>(mask)[at]) <= -1e9f;
}

/// The ledger of one KV head, before and after.
struct H2OEntries {
  const device float* old_scores;
  const device int* old_positions;
  device float* scores;
  device int* positions;
};

/// The logits of one KV head's queries, ordered by pairs of query head and token, and the
/// mask.
struct H2OLogits {
  const device float* lines;
  const device uchar* mask;
  int64_t mask_at; // index of the mask of the head's first query

  float at(const constant H2OLedger& ledger, int pair, int n) const {
    return lines[int64_t(pair) * ledger.rows + n];
  }

  bool hides(const constant H2OLedger& ledger, int pair, int n) const {
    if (h2o_is_hidden(at(ledger, pair, n))) {
      return true;
    }
    return h2o_reads_mask &&
           h2o_mask_hides(
               mask, mask_at + pair / ledger.tokens * ledger.mask_head +
                         pair % ledger.tokens * ledger.mask_query + n * ledger.mask_row);
  }
};

/// Computes for one pair the largest logit that is not hidden and the sum of exp(logit -
/// largest); all lanes get both.
inline void h2o_add_logits(
    H2OLogits logits,
    const constant H2OLedger& ledger,
    int pair,
    uint lane,
    thread float& largest,
    thread float& total) {
  for (int n = lane; n < ledger.rows; n += 32) {
    if (!logits.hides(ledger, pair, n)) {
      const float logit = logits.at(ledger, pair, n);
      const float most = max(largest, logit);
      total = total * fast::exp(largest - most) + fast::exp(logit - most);
      largest = most;
    }
  }
  const float most = simd_max(largest);
  total = simd_sum(total * fast::exp(largest - most));
  largest = most;
}

/// The score of a row after one more token's queries. m is the mean over the group of
/// |logit| or of exp(logit - largest) * weight. A row that no query sees keeps its score.
inline float h2o_observed(
    float score,
    H2OLogits logits,
    const constant H2OLedger& ledger,
    int token,
    int n,
    const threadgroup float* largest,
    const threadgroup float* weight) {
  bool seen = false;
  float m = 0;
  for (int g = 0; g < ledger.group; ++g) {
    const int pair = g * ledger.tokens + token;
    if (!logits.hides(ledger, pair, n)) {
      const float logit = logits.at(ledger, pair, n);
      seen = true;
      m += h2o_score == H2O_SCORE_ABS_LOGIT
               ? abs(logit) / ledger.group
               : fast::exp(logit - largest[pair]) * weight[pair];
    }
  }
  if (!seen || !h2o_is_finite(m)) {
    return score;
  }
  const float faded = ledger.policy.decay * score;
  const float next =
      h2o_score == H2O_SCORE_PEAK ? max(faded, m) : faded + (1 - ledger.policy.decay) * m;
  return score < 0 ? m : next;
}

/// Whether eviction must skip a row with this position.
inline bool h2o_is_protected(
    int position, const constant H2OLedger& ledger, const device int* pins) {
  if (position < ledger.policy.sink_size || position >= ledger.recent_from) {
    return true;
  }
  if (h2o_has_pins) {
    for (int i = 0; i < ledger.pin_count; ++i) {
      if (position >= pins[2 * i] && position < pins[2 * i + 1]) {
        return true;
      }
    }
  }
  return false;
}

/// Larger than every position.
#define H2O_NO_POSITION 2147483647

/// The row to evict: least importance, then lowest position.
struct H2OVictim {
  float importance;
  int position;
  int entry;

  void consider(H2OVictim other) {
    if (other.importance < importance ||
        (other.importance == importance && other.position < position)) {
      *this = other;
    }
  }

  /// The row to evict among the rows of a simdgroup; all lanes get it.
  H2OVictim of_simdgroup() const {
    const float least = simd_min(importance);
    const int lowest = simd_min(importance == least ? position : H2O_NO_POSITION);
    const bool mine = importance == least && position == lowest;
    return {least, lowest, simd_max(mine ? entry : -1)};
  }
};

/// Updates the ledger of one KV head, with one threadgroup: adds the new tokens, scores
/// all rows by the logits that attention stored, and chooses the next victim.
///
/// Entries of the ledger are the pool's rows, then the ring's slots. Rows of attention
/// are only those in use. Without a ring both are the same. There are at most 32 pairs of
/// query head and token.
template <typename T>
[[kernel, max_total_threads_per_threadgroup(1024)]] void h2o_update_ledger(
    const device float* logits [[buffer(0), function_constant(h2o_observes)]],
    const device float* old_scores [[buffer(1)]],
    const device int* old_positions [[buffer(2)]],
    const device int* old_victim [[buffer(3)]],
    device float* scores [[buffer(4)]],
    device int* positions [[buffer(5)]],
    device int* victim [[buffer(6)]],
    const constant H2OLedger& ledger [[buffer(7)]],
    const device uchar* mask [[buffer(8), function_constant(h2o_reads_mask)]],
    const device T* sinks [[buffer(9), function_constant(h2o_has_sinks)]],
    const device int* pins [[buffer(10), function_constant(h2o_has_pins)]],
    uint3 tid [[threadgroup_position_in_grid]],
    uint3 threads [[threads_per_threadgroup]],
    uint3 thread_index [[thread_position_in_threadgroup]],
    uint simd_gid [[simdgroup_index_in_threadgroup]],
    uint simd_lid [[thread_index_in_simdgroup]]) {
  threadgroup float largest[32]; // of each query head and token
  threadgroup float weight[32];  // its probabilities are exp(logit - largest) * weight
  threadgroup float best_importance[32]; // of each simdgroup, like the next arrays
  threadgroup int best_position[32];
  threadgroup int best_entry[32];

  const int head = tid.x;
  const int batch = head / ledger.kv_heads;
  const int first_query = (head % ledger.kv_heads) * ledger.group;
  const int pairs = ledger.group * ledger.tokens;
  const int simdgroups = threads.x / 32;
  const int64_t entry_at = int64_t(head) * ledger.size;
  const int shift =
      ledger.pool_size - ledger.pool_rows; // added to a ring's row, gives its entry

  int first_entry = ledger.first_row;
  if (first_entry == H2O_OVER_VICTIM) {
    first_entry = clamp(old_victim[head], 0, ledger.size - 1);
  }
  int moved_to = -1;
  if (ledger.leaves != 0) {
    moved_to =
        h2o_pool_row_for_leaving(ledger.pool_used, ledger.pool_size, old_victim[head]);
  }

  const H2OLogits seen{
      h2o_observes ? logits + int64_t(head) * pairs * ledger.rows : nullptr,
      h2o_reads_mask ? mask : nullptr,
      batch * ledger.mask_batch + first_query * ledger.mask_head};
  if (h2o_observes) {
    for (int pair = simd_gid; pair < pairs; pair += simdgroups) {
      float most = H2O_LOWEST;
      float total = 0;
      if (h2o_score != H2O_SCORE_ABS_LOGIT) {
        if (h2o_has_sinks && simd_lid == 0) {
          most = static_cast<float>(sinks[first_query + pair / ledger.tokens]);
          total = 1;
        }
        h2o_add_logits(seen, ledger, pair, simd_lid, most, total);
      }
      if (simd_lid == 0) {
        largest[pair] = most;
        weight[pair] = (total == 0 ? 0 : 1 / total) / ledger.group;
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  const H2OEntries entries{
      old_scores + entry_at, old_positions + entry_at, scores + entry_at,
      positions + entry_at};
  for (int entry = thread_index.x; entry < ledger.size; entry += threads.x) {
    const bool in_ring = entry >= ledger.pool_size;
    const int n = in_ring ? entry - shift : entry; // the row that attention read
    if (in_ring ? n >= ledger.rows : n >= ledger.pool_rows) {
      entries.scores[entry] = -1;
      entries.positions[entry] = -1;
      continue;
    }
    const int token = entry - first_entry;
    float score = -1;
    int position = ledger.offset + token;
    if (token < 0 || token >= ledger.tokens) {
      const int from = entry == moved_to ? first_entry : entry;
      score = entries.old_scores[from];
      position = entries.old_positions[from];
    }
    if (h2o_observes) {
      for (int t = ledger.observed_from; t < ledger.tokens; ++t) {
        score = h2o_observed(score, seen, ledger, t, n, largest, weight);
      }
    }
    entries.scores[entry] = score;
    entries.positions[entry] = position;
  }

  if (ledger.chooses == 0) {
    if (thread_index.x == 0) {
      victim[head] = -1;
    }
    return;
  }
  // Every entry is in use. Each thread compares the entries that it has just written.
  H2OVictim worst{FLT_MAX, H2O_NO_POSITION, -1};
  for (int entry = thread_index.x; entry < ledger.size; entry += threads.x) {
    const int position = entries.positions[entry];
    if (!h2o_is_protected(position, ledger, pins)) {
      worst.consider({entries.scores[entry], position, entry});
    }
  }
  worst = worst.of_simdgroup();
  if (simd_lid == 0) {
    best_importance[simd_gid] = worst.importance;
    best_position[simd_gid] = worst.position;
    best_entry[simd_gid] = worst.entry;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd_gid == 0) {
    worst = {FLT_MAX, H2O_NO_POSITION, -1};
    if (int(simd_lid) < simdgroups) {
      worst = {best_importance[simd_lid], best_position[simd_lid], best_entry[simd_lid]};
    }
    worst = worst.of_simdgroup();
    if (simd_lid == 0) {
      victim[head] = worst.entry;
    }
  }
}
