#pragma once

#include "h2o_query.h"

/// Attention over dense rows or rows in MLX's affine quantization. One threadgroup of 32
/// simdgroups, which share the rows, works on one query head of one sequence (x) and one
/// query (y).
template <typename T, int D>
[[kernel, max_total_threads_per_threadgroup(1024)]] void h2o_attend(
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
    const device bool* bmask [[buffer(15), function_constant(h2o_bool_mask)]],
    const device T* fmask [[buffer(16), function_constant(h2o_float_mask)]],
    const device T* sinks [[buffer(17), function_constant(h2o_has_sinks)]],
    device float* logits [[buffer(18), function_constant(h2o_emits_logits)]],
    uint3 tid [[threadgroup_position_in_grid]],
    uint3 tpg [[threadgroups_per_grid]],
    uint simd_gid [[simdgroup_index_in_threadgroup]],
    uint simd_lid [[thread_index_in_simdgroup]]) {
  constexpr int simdgroups = 32;
  threadgroup float outputs[simdgroups * 32];
  threadgroup float largest[simdgroups];
  threadgroup float totals[simdgroups];

  const H2OAttentionRows rows{
      {key_words, value_words, h2o_has_ring ? ring_key_words : nullptr,
       h2o_has_ring ? ring_value_words : nullptr},
      {h2o_pool_packed ? key_scales : nullptr, h2o_pool_packed ? value_scales : nullptr,
       h2o_ring_packed ? ring_key_scales : nullptr,
       h2o_ring_packed ? ring_value_scales : nullptr},
      {h2o_pool_packed ? key_biases : nullptr, h2o_pool_packed ? value_biases : nullptr,
       h2o_ring_packed ? ring_key_biases : nullptr,
       h2o_ring_packed ? ring_value_biases : nullptr}};
  const int head = tid.x;
  auto query = h2o_query<T, D>(
      attention, queries, h2o_bool_mask ? bmask : nullptr, h2o_float_mask ? fmask : nullptr,
      h2o_has_sinks ? sinks : nullptr, h2o_emits_logits ? logits : nullptr, head, tpg.x,
      tid.y, tpg.y, simd_gid == 0, simd_lid);
  rows.add_to<T, D, 1>(
      query, attention, head / attention.group, simd_gid, simdgroups, simd_lid);

  // Scales the results of all simdgroups to one maximum and adds them up.
  if (simd_lid == 0) {
    largest[simd_gid] = query.largest;
    totals[simd_gid] = query.total;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float most = simd_max(largest[simd_lid]);
  const float factor = fast::exp(largest[simd_lid] - most);
  const float total = simd_sum(totals[simd_lid] * factor);
  device T* line = out + (int64_t(head) * tpg.y + tid.y) * D;
  for (int j = 0; j < D / 32; ++j) {
    outputs[simd_lid * 32 + simd_gid] = query.out[j];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float sum = simd_sum(outputs[simd_gid * 32 + simd_lid] * factor);
    if (simd_lid == 0) {
      line[H2OLane<D>::element(simd_gid, j)] =
          static_cast<T>(total == 0 ? sum : sum / total);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

/// The first of two passes for many rows: each simdgroup of a threadgroup takes one query
/// head (y) and query (z) of a KV head (grid x) and sequence (grid y) over every
/// h2o_blocks-th row from the grid's z on.
template <typename T, int D>
[[kernel, max_total_threads_per_threadgroup(1024)]] void h2o_attend_block(
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
    const device bool* bmask [[buffer(15), function_constant(h2o_bool_mask)]],
    const device T* fmask [[buffer(16), function_constant(h2o_float_mask)]],
    const device T* sinks [[buffer(17), function_constant(h2o_has_sinks)]],
    device float* logits [[buffer(18), function_constant(h2o_emits_logits)]],
    device float* totals [[buffer(19)]],
    device float* largest [[buffer(20)]],
    uint3 tptg [[threads_per_threadgroup]],
    uint3 tidtg [[thread_position_in_threadgroup]],
    uint3 tid [[threadgroup_position_in_grid]],
    uint3 tpg [[threadgroups_per_grid]],
    uint simd_lid [[thread_index_in_simdgroup]]) {
  const H2OAttentionRows rows{
      {key_words, value_words, h2o_has_ring ? ring_key_words : nullptr,
       h2o_has_ring ? ring_value_words : nullptr},
      {h2o_pool_packed ? key_scales : nullptr, h2o_pool_packed ? value_scales : nullptr,
       h2o_ring_packed ? ring_key_scales : nullptr,
       h2o_ring_packed ? ring_value_scales : nullptr},
      {h2o_pool_packed ? key_biases : nullptr, h2o_pool_packed ? value_biases : nullptr,
       h2o_ring_packed ? ring_key_biases : nullptr,
       h2o_ring_packed ? ring_value_biases : nullptr}};
  const int kv_head = tid.y * tpg.x + tid.x; // counts the heads of all sequences
  const int head = kv_head * attention.group + tidtg.y;
  const int block = tid.z;
  auto query = h2o_query<T, D>(
      attention, queries, h2o_bool_mask ? bmask : nullptr, h2o_float_mask ? fmask : nullptr,
      h2o_has_sinks ? sinks : nullptr, h2o_emits_logits ? logits : nullptr, head,
      tpg.y * attention.query_heads, tidtg.z, tptg.z, block == 0, simd_lid);
  rows.add_to<T, D, (D > 128 ? 2 : 4)>(
      query, attention, kv_head, block, h2o_blocks, simd_lid);

  const int64_t part = (int64_t(head) * tptg.z + tidtg.z) * h2o_blocks + block;
  if (simd_lid == 0) {
    totals[part] = query.total;
    largest[part] = query.largest;
  }
  for (int j = 0; j < D / 32; ++j) {
    out[part * D + H2OLane<D>::element(simd_lid, j)] = static_cast<T>(query.out[j]);
  }
}

/// The second pass: scales the blocks of a query to one maximum and adds them up. One
/// threadgroup of 32 simdgroups works on one query head of one sequence (x) and one query
/// (y).
template <typename T, int D>
[[kernel, max_total_threads_per_threadgroup(1024)]] void h2o_add_blocks(
    const device T* parts [[buffer(0)]],
    const device float* totals [[buffer(1)]],
    const device float* largest [[buffer(2)]],
    device T* out [[buffer(3)]],
    uint3 tid [[threadgroup_position_in_grid]],
    uint3 tpg [[threadgroups_per_grid]],
    uint simd_gid [[simdgroup_index_in_threadgroup]],
    uint simd_lid [[thread_index_in_simdgroup]]) {
  threadgroup float outputs[32 * 32];
  const int64_t line = int64_t(tid.x) * tpg.y + tid.y;
  totals += line * h2o_blocks;
  largest += line * h2o_blocks;
  parts += line * h2o_blocks * D;

  float most = H2O_LOWEST;
  for (int block = simd_lid; block < h2o_blocks; block += 32) {
    most = max(most, largest[block]);
  }
  most = simd_max(most);
  float total = 0;
  for (int block = simd_lid; block < h2o_blocks; block += 32) {
    total += fast::exp(largest[block] - most) * totals[block];
  }
  total = simd_sum(total);

  float sum[D / 32] = {0};
  for (int block = simd_gid; block < h2o_blocks; block += 32) {
    const float factor = fast::exp(largest[block] - most);
    for (int j = 0; j < D / 32; ++j) {
      sum[j] += factor * static_cast<float>(
                             parts[int64_t(block) * D + H2OLane<D>::element(simd_lid, j)]);
    }
  }
  for (int j = 0; j < D / 32; ++j) {
    outputs[simd_lid * 32 + simd_gid] = sum[j];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float x = simd_sum(outputs[simd_gid * 32 + simd_lid]);
    if (simd_lid == 0) {
      out[line * D + H2OLane<D>::element(simd_gid, j)] =
          static_cast<T>(total == 0 ? x : x / total);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}
