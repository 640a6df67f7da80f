#pragma once

#include "h2o_ring.h"
#include "h2o_vectors.h"

/// Stores a vector in a row: element by element, or quantized group by group.
template <typename T>
inline void h2o_store(
    H2OVector<T> from,
    device uchar* row,
    const constant H2OVectorLayout& layout,
    int bits,
    uint thread_index,
    uint threads) {
  if (bits == 16) {
    device T* to = reinterpret_cast<device T*>(row + layout.words);
    for (int d = thread_index; d < layout.dim; d += threads) {
      to[d] = static_cast<T>(from.at(d));
    }
    return;
  }
  for (int group = thread_index / 32; group < layout.dim / h2o_group_size;
       group += threads / 32) {
    h2o_quantize_group(from, row, layout, bits, group, thread_index % 32);
  }
}

/// Copies a row of the ring to the pool; quantizes it again if the formats differ.
template <typename T>
inline void h2o_move_vector(
    const device uchar* from,
    const constant H2OVectorLayout& from_layout,
    device uchar* to,
    const constant H2OVectorLayout& to_layout,
    uint thread_index,
    uint threads) {
  if (h2o_ring_bits == h2o_key_bits && h2o_key_bits != 16) {
    const int words = to_layout.dim * h2o_key_bits / 8;
    for (int i = thread_index; i < words; i += threads) {
      to[to_layout.words + i] = from[from_layout.words + i];
    }
    const int bytes = to_layout.dim / h2o_group_size * int(sizeof(T));
    for (int i = thread_index; i < bytes; i += threads) {
      to[to_layout.scales + i] = from[from_layout.scales + i];
      to[to_layout.biases + i] = from[from_layout.biases + i];
    }
    return;
  }
  auto vector = h2o_vector<T>(from, from_layout, h2o_ring_bits);
  h2o_store(vector, to, to_layout, h2o_key_bits, thread_index, threads);
}

/// Writes each token's key and value to its row, quantized if the format says so. With a
/// ring, the row that a single token overwrites moves to the pool first.
///
/// One threadgroup of whole simdgroups works on one KV head (x) and one token (y).
/// `victim` is always bound, so that this kernel waits for the kernel that wrote it,
/// h2o_update_ledger, and thereby for all reads of the rows.
template <typename T>
[[kernel]] void h2o_write_row(
    const device T* keys [[buffer(0)]],
    const device T* values [[buffer(1)]],
    const device int* victim [[buffer(2)]],
    device uchar* pool [[buffer(3)]],
    device uchar* ring [[buffer(4), function_constant(h2o_has_ring)]],
    const constant H2OWrite& write [[buffer(5)]],
    uint3 tid [[threadgroup_position_in_grid]],
    uint3 threads [[threads_per_threadgroup]],
    uint3 thread_index [[thread_position_in_threadgroup]]) {
  const int head = tid.x;
  const int token = tid.y;
  const int64_t batch = head / write.kv_heads;
  const int64_t kv_head = head % write.kv_heads;
  H2OVector<T> key{
      reinterpret_cast<const device uchar*>(
          keys + batch * write.keys.batch + kv_head * write.keys.head +
          token * write.keys.token),
      nullptr, nullptr, 16, write.keys.element};
  H2OVector<T> value{
      reinterpret_cast<const device uchar*>(
          values + batch * write.values.batch + kv_head * write.values.head +
          token * write.values.token),
      nullptr, nullptr, 16, write.values.element};

  device uchar* pool_head = pool + head * write.pool.head;
  if (!h2o_has_ring) {
    int row = write.first_row + token;
    if (write.first_row == H2O_OVER_VICTIM) {
      row = clamp(victim[head], 0, write.pool_size - 1);
    }
    device uchar* to = pool_head + row * write.pool.row;
    h2o_store(key, to, write.pool.key, h2o_key_bits, thread_index.x, threads.x);
    h2o_store(value, to, write.pool.value, h2o_value_bits, thread_index.x, threads.x);
    return;
  }

  device uchar* slot =
      ring + head * write.ring.head + (write.first_row + token) * write.ring.row;
  if (write.leaves != 0) {
    const int row =
        h2o_pool_row_for_leaving(write.pool_used, write.pool_size, victim[head]);
    if (row >= 0) {
      device uchar* to = pool_head + row * write.pool.row;
      h2o_move_vector<T>(
          slot, write.ring.key, to, write.pool.key, thread_index.x, threads.x);
      h2o_move_vector<T>(
          slot, write.ring.value, to, write.pool.value, thread_index.x, threads.x);
    }
    threadgroup_barrier(mem_flags::mem_device);
  }
  h2o_store(key, slot, write.ring.key, h2o_ring_bits, thread_index.x, threads.x);
  h2o_store(value, slot, write.ring.value, h2o_ring_bits, thread_index.x, threads.x);
}
