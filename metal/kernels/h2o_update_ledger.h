#pragma once

#include "h2o_vectors.h"

constant bool h2o_has_sinks [[function_constant(4)]];
constant int h2o_score [[function_constant(11)]];
constant int h2o_mask_kind [[function_constant(12)]];
constant bool h2o_observes [[function_constant(13)]];
constant bool h2o_has_pins [[function_constant(14)]];
constant bool h2o_has_held [[function_constant(15)]];
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
  const device float* old_novelty;
  device float* scores;
  device int* positions;
  device float* novelty;
};

/// Adds the unit key u of one token to the sum S of all `count` unit keys, and returns the
/// token's novelty: 1 - u.S/|S|, or with a margin above 0, max(0, c - u.S/|S| - margin),
/// where c is the typical cosine: |S|^2 = count + count (count - 1) c^2. One simdgroup
/// works on it.
template <typename T>
inline float h2o_enter_key(
    H2OVector<T> key,
    int dim,
    int count,
    float margin,
    const device float* old_sum,
    device float* sum,
    uint lane) {
  float square = 0;
  for (int d = lane; d < dim; d += 32) {
    const float k = key.at(d);
    square += k * k;
  }
  const float norm = sqrt(simd_sum(square));
  const bool usable = h2o_is_finite(norm) && norm > 0;
  float along = 0;
  float sum_square = 0;
  for (int d = lane; d < dim; d += 32) {
    const float unit = usable ? key.at(d) / norm : 0;
    const float total = old_sum[d] + unit;
    sum[d] = total;
    along += unit * total;
    sum_square += total * total;
  }
  along = simd_sum(along);
  sum_square = simd_sum(sum_square);
  const float sum_norm = sqrt(sum_square);
  if (!h2o_is_finite(norm)) {
    return 0;
  }
  const float cosine = sum_norm > 0 ? along / sum_norm : 0;
  if (!(margin > 0)) {
    return 1 - cosine;
  }
  const float seen = count;
  const float typical = sqrt(max(0.0f, sum_square - seen) / max(1.0f, seen * (seen - 1)));
  return max(0.0f, typical - cosine - margin);
}

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
    const device uchar* rows [[buffer(0)]],
    const device float* logits [[buffer(1), function_constant(h2o_observes)]],
    const device float* old_scores [[buffer(2)]],
    const device int* old_positions [[buffer(3)]],
    const device float* old_novelty [[buffer(4)]],
    const device float* old_key_sum [[buffer(5)]],
    const device int* old_victim [[buffer(6)]],
    device float* scores [[buffer(7)]],
    device int* positions [[buffer(8)]],
    device float* novelty [[buffer(9)]],
    device float* key_sum [[buffer(10)]],
    device int* victim [[buffer(11)]],
    const constant H2OLedger& ledger [[buffer(12)]],
    const device uchar* mask [[buffer(13), function_constant(h2o_reads_mask)]],
    const device T* sinks [[buffer(14), function_constant(h2o_has_sinks)]],
    const device int* pins [[buffer(15), function_constant(h2o_has_pins)]],
    const device uchar* held [[buffer(16), function_constant(h2o_has_held)]],
    uint3 tid [[threadgroup_position_in_grid]],
    uint3 threads [[threads_per_threadgroup]],
    uint3 thread_index [[thread_position_in_threadgroup]],
    uint simd_gid [[simdgroup_index_in_threadgroup]],
    uint simd_lid [[thread_index_in_simdgroup]]) {
  constexpr int max_tokens = 8;
  threadgroup float new_novelty[max_tokens];
  threadgroup float largest[32];    // of each query head and token
  threadgroup float weight[32];     // its probabilities are exp(logit - largest) * weight
  threadgroup float best_score[32]; // of each simdgroup, like the next arrays
  threadgroup float best_importance[32];
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

  if (simd_gid == 0) {
    const int in_buffer = first_entry - (h2o_has_ring ? ledger.pool_size : 0);
    const int64_t sum_at = int64_t(head) * ledger.key.dim;
    for (int t = 0; t < ledger.tokens; ++t) {
      auto key = h2o_vector<T>(
          rows + head * ledger.key_head + (in_buffer + t) * ledger.key_row, ledger.key,
          h2o_has_ring ? h2o_ring_bits : h2o_key_bits);
      const device float* before = t == 0 ? old_key_sum : key_sum;
      const float value = h2o_enter_key<T>(
          key, ledger.key.dim, ledger.offset + t + 1, ledger.policy.novelty_margin,
          before + sum_at, key_sum + sum_at, simd_lid);
      if (simd_lid == 0) {
        new_novelty[t] = value;
      }
    }
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

  const H2OEntries entries{old_scores + entry_at,  old_positions + entry_at,
                           old_novelty + entry_at, scores + entry_at,
                           positions + entry_at,   novelty + entry_at};
  float most_score = -1;
  for (int entry = thread_index.x; entry < ledger.size; entry += threads.x) {
    const bool in_ring = entry >= ledger.pool_size;
    const int n = in_ring ? entry - shift : entry; // the row that attention read
    if (in_ring ? n >= ledger.rows : n >= ledger.pool_rows) {
      entries.scores[entry] = -1;
      entries.positions[entry] = -1;
      entries.novelty[entry] = 0;
      continue;
    }
    const int token = entry - first_entry;
    float score = -1;
    int position = ledger.offset + token;
    float new_key = 0;
    if (token >= 0 && token < ledger.tokens) {
      new_key = new_novelty[token];
    } else {
      const int from = entry == moved_to ? first_entry : entry;
      score = entries.old_scores[from];
      position = entries.old_positions[from];
      new_key = entries.old_novelty[from];
    }
    if (h2o_observes) {
      for (int t = ledger.observed_from; t < ledger.tokens; ++t) {
        score = h2o_observed(score, seen, ledger, t, n, largest, weight);
      }
    }
    entries.scores[entry] = score;
    entries.positions[entry] = position;
    entries.novelty[entry] = new_key;
    most_score = max(most_score, score);
  }

  if (ledger.chooses == 0) {
    if (thread_index.x == 0) {
      victim[head] = -1;
    }
    return;
  }
  most_score = simd_max(most_score);
  if (simd_lid == 0) {
    best_score[simd_gid] = most_score;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  most_score = simd_max(int(simd_lid) < simdgroups ? best_score[simd_lid] : -1);

  // Every entry is in use. Each thread compares the entries that it has just written.
  H2OVictim worst{FLT_MAX, H2O_NO_POSITION, -1};
  for (int entry = thread_index.x; entry < ledger.size; entry += threads.x) {
    const int position = entries.positions[entry];
    if (h2o_is_protected(position, ledger, pins) ||
        (h2o_has_held && held[entry_at + entry] != 0)) {
      continue;
    }
    float importance = entries.scores[entry];
    if (ledger.policy.novelty != 0) {
      const bool counts = importance > 0 && most_score > 0;
      importance = (counts ? importance / most_score : 0) +
                   ledger.policy.novelty * entries.novelty[entry];
    }
    worst.consider({importance, position, entry});
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
