#pragma once

#include "h2o_vectors.h"

constant bool h2o_query_transposed [[function_constant(0)]]; // [B, L, Hq, D] in memory
constant bool h2o_is_causal [[function_constant(1)]];
constant bool h2o_bool_mask [[function_constant(2)]];
constant bool h2o_float_mask [[function_constant(3)]];
constant bool h2o_has_sinks [[function_constant(4)]];
constant bool h2o_emits_logits [[function_constant(5)]];
constant int h2o_blocks [[function_constant(6)]]; // blocks of h2o_attend_block; otherwise 0

/// Tests the bits of the loaded value, so that it does not depend on a compiler's
/// assumptions about infinity.
inline bool h2o_is_minus_infinity(float x) {
  return as_type<uint>(x) == 0xff800000u;
}
inline bool h2o_is_minus_infinity(float16_t x) {
  return as_type<ushort>(x) == 0xfc00u;
}
inline bool h2o_is_minus_infinity(bfloat16_t x) {
  return as_type<ushort>(x) == 0xff80u;
}

/// Converts a logit for storage: the lowest finite float replaces -inf.
inline float h2o_finite(float logit) {
  const uint bits = as_type<uint>(logit);
  return as_type<float>(bits == 0xff800000u ? 0xff7fffffu : bits);
}

/// Keys or values of one part of the rows, beginning at the row that a simdgroup reads
/// next.
template <typename T, int D>
struct H2OReader {
  const device uchar* words;
  const device uchar* scales; // of packed rows
  const device uchar* biases;
  int64_t word_step; // bytes from one row of the simdgroup to its next row
  int64_t scale_step;
  int bits;

  /// Reads a lane's elements of the `n`-th row from here.
  void read(int n, uint lane, thread float* x) const {
    const device uchar* from = words + n * word_step;
    if (bits == 16) {
      H2OLane<D>::read(reinterpret_cast<const device T*>(from), lane, x);
    } else {
      H2OLane<D>::read_packed(
          from, reinterpret_cast<const device T*>(scales + n * scale_step),
          reinterpret_cast<const device T*>(biases + n * scale_step), bits, lane, x);
    }
  }

  void advance(int rows) {
    words += rows * word_step;
    if (bits != 16) {
      scales += rows * scale_step;
      biases += rows * scale_step;
    }
  }
};

/// A reader of every `step`-th row of a head, from `row` on.
template <typename T, int D>
inline H2OReader<T, D> h2o_reader(
    const device uchar* words,
    const device uchar* scales,
    const device uchar* biases,
    const constant H2OVectors& strides,
    int64_t head,
    int row,
    int step,
    int bits) {
  H2OReader<T, D> reader{
      words + head * strides.word_head + row * strides.word_row,
      nullptr,
      nullptr,
      step * strides.word_row,
      step * strides.scale_row,
      bits};
  if (bits != 16) {
    const int64_t offset = head * strides.scale_head + row * strides.scale_row;
    reader.scales = scales + offset;
    reader.biases = biases + offset;
  }
  return reader;
}

/// The rows that one query sees.
template <typename T>
struct H2OSight {
  int before; // number of rows that a causal mask leaves visible
  const device bool* bmask;
  const device T* fmask;
  int stride;

  bool sees(int row) const {
    if (h2o_is_causal) {
      return row < before;
    }
    if (h2o_bool_mask) {
      return bmask[row * stride];
    }
    return h2o_float_mask ? !h2o_is_minus_infinity(fmask[row * stride]) : true;
  }

  float bias(int row) const {
    return h2o_float_mask && !h2o_is_causal ? static_cast<float>(fmask[row * stride]) : 0;
  }
};

/// The attention of one query over the rows that a simdgroup has read so far, each lane
/// with its elements of query and output.
template <typename T, int D>
struct H2OQuery {
  float query[D / 32];
  float largest;
  float total;
  float out[D / 32];
  H2OSight<T> sight;
  device float* logits; // of all rows; null if h2o_emits_logits is off

  void add(int row, thread const float* key, thread const float* value, uint lane) {
    float score = 0;
    for (int j = 0; j < D / 32; ++j) {
      score += query[j] * key[j];
    }
    score = simd_sum(score) + sight.bias(row);
    const float most = max(largest, score);
    const float factor = fast::exp(largest - most);
    const float weight = fast::exp(score - most);
    largest = most;
    total = total * factor + weight;
    for (int j = 0; j < D / 32; ++j) {
      out[j] = out[j] * factor + weight * value[j];
    }
    store(row, h2o_float_mask ? h2o_finite(score) : score, lane);
  }

  void store(int row, float logit, uint lane) {
    if (h2o_emits_logits && lane == 0) {
      logits[row] = logit;
    }
  }

  /// Adds `count` rows of a simdgroup. Several rows are loaded at once, visible or not,
  /// so that no load waits for the sum of the previous row.
  template <int count>
  void add_rows(
      int row, int step, H2OReader<T, D> keys, H2OReader<T, D> values, uint lane) {
    if (count == 1 && !sight.sees(row)) {
      store(row, H2O_LOWEST, lane);
      return;
    }
    float key[count][D / 32];
    float value[count][D / 32];
    for (int n = 0; n < count; ++n) {
      keys.read(n, lane, key[n]);
    }
    for (int n = 0; n < count; ++n) {
      values.read(n, lane, value[n]);
    }
    for (int n = 0; n < count; ++n) {
      if (count == 1 || sight.sees(row + n * step)) {
        add(row + n * step, key[n], value[n], lane);
      } else {
        store(row + n * step, H2O_LOWEST, lane);
      }
    }
  }

  /// Adds every `step`-th row from `row` up to `end`; returns the row that would be next.
  template <int count>
  int add_part(
      int row, int end, int step, H2OReader<T, D> keys, H2OReader<T, D> values, uint lane) {
    for (; row + (count - 1) * step < end; row += count * step) {
      add_rows<count>(row, step, keys, values, lane);
      keys.advance(count);
      values.advance(count);
    }
    if (count > 1) {
      for (; row < end; row += step) {
        add_rows<1>(row, step, keys, values, lane);
        keys.advance(1);
        values.advance(1);
      }
    }
    return row;
  }
};

/// The buffers of keys and values, first of the pool and then of the ring.
struct H2OAttentionRows {
  const device uchar* words[4];
  const device uchar* scales[4];
  const device uchar* biases[4];

  /// Adds rows of a KV head to a query: every `step`-th row, beginning with `first`.
  template <typename T, int D, int count>
  void add_to(
      thread H2OQuery<T, D>& query,
      const constant H2OAttention& attention,
      int64_t head,
      int first,
      int step,
      uint lane) const {
    const int pool_rows = attention.pool_rows;
    const int next = query.template add_part<count>(
        first, pool_rows, step,
        h2o_reader<T, D>(
            words[0], scales[0], biases[0], attention.pool_keys, head, first, step,
            h2o_key_bits),
        h2o_reader<T, D>(
            words[1], scales[1], biases[1], attention.pool_values, head, first, step,
            h2o_value_bits),
        lane);
    if (h2o_has_ring) {
      const int row = next - pool_rows;
      query.template add_part<count>(
          next, pool_rows + attention.ring_rows, step,
          h2o_reader<T, D>(
              words[2], scales[2], biases[2], attention.ring_keys, head, row, step,
              h2o_ring_bits),
          h2o_reader<T, D>(
              words[3], scales[3], biases[3], attention.ring_values, head, row, step,
              h2o_ring_bits),
          lane);
    }
  }
};

/// A query that has read no row yet. If `sinks_count` is true, it includes the sink of its
/// head.
template <typename T, int D>
inline H2OQuery<T, D> h2o_query(
    const constant H2OAttention& attention,
    const device T* queries,
    const device bool* bmask,
    const device T* fmask,
    const device T* sinks,
    device float* logits,
    int head, // counts the heads of all sequences
    int heads,
    int token,
    int tokens,
    bool sinks_count,
    uint lane) {
  const int count = attention.pool_rows + attention.ring_rows;
  const int64_t line = int64_t(head) * tokens + token;
  const int64_t at = h2o_query_transposed ? int64_t(heads) * token + head : line;
  const int64_t mask_at =
      int64_t(head) * attention.mask_head + int64_t(token) * attention.mask_query;
  H2OQuery<T, D> query{
      {0},
      H2O_LOWEST,
      0,
      {0},
      {count - tokens + token + 1, h2o_bool_mask ? bmask + mask_at : nullptr,
       h2o_float_mask ? fmask + mask_at : nullptr, attention.mask_row},
      h2o_emits_logits ? logits + line * count : nullptr};
  H2OLane<D>::read(queries + at * D, lane, query.query);
  for (int j = 0; j < D / 32; ++j) {
    query.query[j] *= attention.scale;
  }
  if (h2o_has_sinks && sinks_count) {
    query.largest = static_cast<float>(sinks[head % attention.query_heads]);
    query.total = 1;
  }
  return query;
}
