#pragma once

/// One row's key or value: where its words are, and its scales and biases if it has any.
template <typename T>
struct H2ORowPointers {
  const device uchar* words;
  const device T* scales;
  const device T* biases;
};

template <typename T>
inline H2ORowPointers<T> h2o_row(
    const device uchar* words,
    const device uchar* scales,
    const device uchar* biases,
    const constant H2OVectors& strides,
    int64_t head,
    int64_t row,
    bool packed) {
  H2ORowPointers<T> at{
      words + head * strides.word_head + row * strides.word_row, nullptr, nullptr};
  if (packed) {
    const int64_t offset = head * strides.scale_head + row * strides.scale_row;
    at.scales = reinterpret_cast<const device T*>(scales + offset);
    at.biases = reinterpret_cast<const device T*>(biases + offset);
  }
  return at;
}

/// By the bits of the value as it was loaded: fast math takes infinity for impossible.
inline bool h2o_is_minus_infinity(float x) {
  return as_type<uint>(x) == 0xff800000u;
}
inline bool h2o_is_minus_infinity(half x) {
  return as_type<ushort>(x) == 0xfc00u;
}
inline bool h2o_is_minus_infinity(bfloat16_t x) {
  return as_type<ushort>(x) == 0xff80u;
}

template <typename T, int D>
inline void h2o_read_lane(H2ORowPointers<T> at, int bits, uint lane, thread float* x) {
  if (bits == 16) {
    H2OLane<D>::read(reinterpret_cast<const device T*>(at.words), lane, x);
  } else {
    H2OLane<D>::read_packed(at.words, at.scales, at.biases, bits, lane, x);
  }
}

/// The softmax of one query over the rows that a simdgroup has read so far, each lane with
/// its elements of the output.
template <int D>
struct H2OSoftmax {
  float largest;
  float total;
  float out[D / 32];

  void add(float score, thread const float* value) {
    const float most = max(largest, score);
    const float factor = fast::exp(largest - most);
    const float weight = fast::exp(score - most);
    largest = most;
    total = total * factor + weight;
    for (int j = 0; j < D / 32; ++j) {
      out[j] = out[j] * factor + weight * value[j];
    }
  }
};

/// The buffers of both kernels, gathered.
template <typename T>
struct H2OAttentionRows {
  const device uchar* pool_words[2]; // keys, values
  const device uchar* pool_scales[2];
  const device uchar* pool_biases[2];
  const device uchar* ring_words[2];
  const device uchar* ring_scales[2];
  const device uchar* ring_biases[2];

  H2ORowPointers<T> key(
      const constant H2OAttention& attention, int64_t head, int row) const {
    if (!h2o_has_ring || row < attention.pool_rows) {
      return h2o_row<T>(
          pool_words[0], pool_scales[0], pool_biases[0], attention.pool_keys, head, row,
          h2o_pool_packed);
    }
    return h2o_row<T>(
        ring_words[0], ring_scales[0], ring_biases[0], attention.ring_keys, head,
        row - attention.pool_rows, h2o_ring_packed);
  }

  H2ORowPointers<T> value(
      const constant H2OAttention& attention, int64_t head, int row) const {
    if (!h2o_has_ring || row < attention.pool_rows) {
      return h2o_row<T>(
          pool_words[1], pool_scales[1], pool_biases[1], attention.pool_values, head, row,
          h2o_pool_packed);
    }
    return h2o_row<T>(
        ring_words[1], ring_scales[1], ring_biases[1], attention.ring_values, head,
        row - attention.pool_rows, h2o_ring_packed);
  }
};

/// Reads every `step`-th row from `first` on into `softmax`, and stores the logits.
template <typename T, int D>
inline void h2o_attend_rows(
    const constant H2OAttention& attention,
    H2OAttentionRows<T> rows,
    thread const float* query,
    int64_t kv_head,
    int first,
    int step,
    int visible, // causality lets the query see so many rows
    const device bool* bmask,
    const device T* fmask,
    device float* scores,
    uint lane,
    thread H2OSoftmax<D>& softmax) {
  const int count = attention.pool_rows + attention.ring_rows;
  for (int i = first; i < count; i += step) {
    bool use_key = true;
    float bias = 0;
    if (do_causal) {
      use_key = i < visible;
    } else if (bool_mask) {
      use_key = bmask[i * attention.mask_row];
    } else if (float_mask) {
      bias = static_cast<float>(fmask[i * attention.mask_row]);
      use_key = !h2o_is_minus_infinity(fmask[i * attention.mask_row]);
    }
    float logit = Limits<float>::finite_min;
    if (use_key) {
      const bool pooled = !h2o_has_ring || i < attention.pool_rows;
      float x[D / 32];
      h2o_read_lane<T, D>(
          rows.key(attention, kv_head, i), pooled ? h2o_key_bits : h2o_ring_bits, lane, x);
      float score = 0;
      for (int j = 0; j < D / 32; ++j) {
        score += query[j] * x[j];
      }
      score = simd_sum(score) + bias;
      h2o_read_lane<T, D>(
          rows.value(attention, kv_head, i), pooled ? h2o_value_bits : h2o_ring_bits, lane,
          x);
      softmax.add(score, x);
      logit = float_mask ? h2o_finite(score) : score;
    }
    if (h2o_emit && lane == 0) {
      scores[i] = logit;
    }
  }
}

template <typename T, int D>
inline void h2o_read_query(const device T* query, float scale, uint lane, thread float* q) {
  H2OLane<D>::read(query, lane, q);
  for (int j = 0; j < D / 32; ++j) {
    q[j] *= scale;
  }
}

/// sdpa_vector over rows in MLX's affine quantization (or, in one part, as they are): one
/// threadgroup of 32 simdgroups for each query head of each sequence (x) and query (y).
template <typename T, int D>
[[kernel, max_total_threads_per_threadgroup(1024)]] void sdpa_vector_quantized(
    const device T* queries [[buffer(0)]],
    device T* out [[buffer(1)]],
    const constant H2OAttention& attention [[buffer(2)]],
    const device uchar* key_words [[buffer(3)]],
    const device uchar* key_scales [[buffer(4), function_constant(h2o_pool_packed)]],
    const device uchar* key_biases [[buffer(5), function_constant(h2o_pool_packed)]],
    const device uchar* value_words [[buffer(6)]],
    const device uchar* value_scales [[buffer(7), function_constant(h2o_pool_packed)]],
    const device uchar* value_biases [[buffer(8), function_constant(h2o_pool_packed)]],
    const device uchar* ring_key_words [[buffer(9), function_constant(h2o_has_ring)]],
    const device uchar* ring_key_scales [[buffer(10), function_constant(h2o_ring_packed)]],
    const device uchar* ring_key_biases [[buffer(11), function_constant(h2o_ring_packed)]],
    const device uchar* ring_value_words [[buffer(12), function_constant(h2o_has_ring)]],
    const device uchar* ring_value_scales
    [[buffer(13), function_constant(h2o_ring_packed)]],
    const device uchar* ring_value_biases
    [[buffer(14), function_constant(h2o_ring_packed)]],
    const device bool* bmask [[buffer(15), function_constant(bool_mask)]],
    const device T* fmask [[buffer(16), function_constant(float_mask)]],
    const device T* sinks [[buffer(17), function_constant(has_sinks)]],
    device float* scores [[buffer(27), function_constant(h2o_emit)]],
    uint3 tid [[threadgroup_position_in_grid]],
    uint3 tpg [[threadgroups_per_grid]],
    uint simd_gid [[simdgroup_index_in_threadgroup]],
    uint simd_lid [[thread_index_in_simdgroup]]) {
  constexpr int simdgroups = 32;
  threadgroup float outputs[simdgroups * 32];
  threadgroup float largest[simdgroups];
  threadgroup float totals[simdgroups];

  const int head = tid.x; // of all sequences
  const int query = tid.y;
  const int tokens = tpg.y;
  const int count = attention.pool_rows + attention.ring_rows;
  const int64_t line = int64_t(head) * tokens + query;
  const int64_t at = query_transposed ? int64_t(tpg.x) * query + head : line;
  float q[D / 32];
  h2o_read_query<T, D>(queries + at * D, attention.scale, simd_lid, q);

  H2OSoftmax<D> softmax{Limits<float>::finite_min, 0, {0}};
  if (has_sinks && simd_gid == 0) {
    softmax.largest = static_cast<float>(sinks[head % attention.query_heads]);
    softmax.total = 1;
  }
  H2OAttentionRows<T> rows{
      {key_words, value_words},
      {h2o_pool_packed ? key_scales : nullptr, h2o_pool_packed ? value_scales : nullptr},
      {h2o_pool_packed ? key_biases : nullptr, h2o_pool_packed ? value_biases : nullptr},
      {h2o_has_ring ? ring_key_words : nullptr, h2o_has_ring ? ring_value_words : nullptr},
      {h2o_ring_packed ? ring_key_scales : nullptr,
       h2o_ring_packed ? ring_value_scales : nullptr},
      {h2o_ring_packed ? ring_key_biases : nullptr,
       h2o_ring_packed ? ring_value_biases : nullptr}};
  const int64_t mask_at =
      int64_t(head) * attention.mask_head + int64_t(query) * attention.mask_query;
  h2o_attend_rows<T, D>(
      attention, rows, q, head / attention.group, simd_gid, simdgroups,
      count - tokens + query + 1, bool_mask ? bmask + mask_at : nullptr,
      float_mask ? fmask + mask_at : nullptr, h2o_emit ? scores + line * count : nullptr,
      simd_lid, softmax);

  // Each simdgroup has its share of the rows: bring all to one scale and add them up.
  if (simd_lid == 0) {
    largest[simd_gid] = softmax.largest;
    totals[simd_gid] = softmax.total;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float most = simd_max(largest[simd_lid]);
  const float factor = fast::exp(largest[simd_lid] - most);
  const float total = simd_sum(totals[simd_lid] * factor);
  for (int j = 0; j < D / 32; ++j) {
    outputs[simd_lid * 32 + simd_gid] = softmax.out[j];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float sum = simd_sum(outputs[simd_gid * 32 + simd_lid] * factor);
    if (simd_lid == 0) {
      out[line * D + H2OLane<D>::element(simd_gid, j)] =
          static_cast<T>(total == 0 ? sum : sum / total);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

/// The first of two passes for many rows: each simdgroup of a threadgroup takes one query
/// head (y) and query (z) of a KV head (grid x) and sequence (grid y) over every
/// `blocks`-th row from the grid's z on. sdpa_vector_2pass_2 adds up the partial results.
template <typename T, int D>
[[kernel, max_total_threads_per_threadgroup(1024)]] void sdpa_vector_2pass_1_quantized(
    const device T* queries [[buffer(0)]],
    device T* out [[buffer(1)]],
    const constant H2OAttention& attention [[buffer(2)]],
    const device uchar* key_words [[buffer(3)]],
    const device uchar* key_scales [[buffer(4), function_constant(h2o_pool_packed)]],
    const device uchar* key_biases [[buffer(5), function_constant(h2o_pool_packed)]],
    const device uchar* value_words [[buffer(6)]],
    const device uchar* value_scales [[buffer(7), function_constant(h2o_pool_packed)]],
    const device uchar* value_biases [[buffer(8), function_constant(h2o_pool_packed)]],
    const device uchar* ring_key_words [[buffer(9), function_constant(h2o_has_ring)]],
    const device uchar* ring_key_scales [[buffer(10), function_constant(h2o_ring_packed)]],
    const device uchar* ring_key_biases [[buffer(11), function_constant(h2o_ring_packed)]],
    const device uchar* ring_value_words [[buffer(12), function_constant(h2o_has_ring)]],
    const device uchar* ring_value_scales
    [[buffer(13), function_constant(h2o_ring_packed)]],
    const device uchar* ring_value_biases
    [[buffer(14), function_constant(h2o_ring_packed)]],
    const device bool* bmask [[buffer(15), function_constant(bool_mask)]],
    const device T* fmask [[buffer(16), function_constant(float_mask)]],
    const device T* sinks [[buffer(17), function_constant(has_sinks)]],
    device float* sums [[buffer(18)]],
    device float* maxs [[buffer(19)]],
    device float* scores [[buffer(27), function_constant(h2o_emit)]],
    uint3 tptg [[threads_per_threadgroup]],
    uint3 tidtg [[thread_position_in_threadgroup]],
    uint3 tid [[threadgroup_position_in_grid]],
    uint3 tpg [[threadgroups_per_grid]],
    uint simd_lid [[thread_index_in_simdgroup]]) {
  const int kv_head = tid.y * tpg.x + tid.x; // of all sequences
  const int head = kv_head * attention.group + tidtg.y;
  const int query = tidtg.z;
  const int tokens = tptg.z;
  const int block = tid.z;
  const int count = attention.pool_rows + attention.ring_rows;
  const int64_t line = int64_t(head) * tokens + query;
  const int64_t at =
      query_transposed ? int64_t(tpg.y) * attention.query_heads * query + head : line;
  float q[D / 32];
  h2o_read_query<T, D>(queries + at * D, attention.scale, simd_lid, q);

  H2OSoftmax<D> softmax{Limits<float>::finite_min, 0, {0}};
  if (has_sinks && block == 0) {
    softmax.largest = static_cast<float>(sinks[head % attention.query_heads]);
    softmax.total = 1;
  }
  H2OAttentionRows<T> rows{
      {key_words, value_words},
      {h2o_pool_packed ? key_scales : nullptr, h2o_pool_packed ? value_scales : nullptr},
      {h2o_pool_packed ? key_biases : nullptr, h2o_pool_packed ? value_biases : nullptr},
      {h2o_has_ring ? ring_key_words : nullptr, h2o_has_ring ? ring_value_words : nullptr},
      {h2o_ring_packed ? ring_key_scales : nullptr,
       h2o_ring_packed ? ring_value_scales : nullptr},
      {h2o_ring_packed ? ring_key_biases : nullptr,
       h2o_ring_packed ? ring_value_biases : nullptr}};
  const int64_t mask_at =
      int64_t(head) * attention.mask_head + int64_t(query) * attention.mask_query;
  h2o_attend_rows<T, D>(
      attention, rows, q, kv_head, block, blocks, count - tokens + query + 1,
      bool_mask ? bmask + mask_at : nullptr, float_mask ? fmask + mask_at : nullptr,
      h2o_emit ? scores + line * count : nullptr, simd_lid, softmax);

  const int64_t part = line * blocks + block;
  if (simd_lid == 0) {
    sums[part] = softmax.total;
    maxs[part] = softmax.largest;
  }
  for (int j = 0; j < D / 32; ++j) {
    out[part * D + H2OLane<D>::element(simd_lid, j)] = static_cast<T>(softmax.out[j]);
  }
}
