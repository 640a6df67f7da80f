// Small kernels, right and wrong, each for one thing that the host must tell.

#include <metal_stdlib>

using namespace metal;

constant bool flag [[function_constant(100)]];
constant int count [[function_constant(101)]];

struct Header {
  int length;
  float factor;
};

[[kernel]] void copy(
    const device float* from [[buffer(0)]],
    device float* to [[buffer(1)]],
    const constant int& length [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  if (int(i) < length) {
    to[i] = from[i];
  }
}

[[kernel]] void scale(
    device float* values [[buffer(0)]],
    const constant Header& header [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  if (int(i) < header.length) {
    values[i] *= header.factor;
  }
}

[[kernel]] void read_before(
    const device float* from [[buffer(0)]],
    device float* to [[buffer(1)]]) {
  to[0] = from[-1];
}

[[kernel]] void read_misaligned(
    const device uchar* from [[buffer(0)]],
    device float* to [[buffer(1)]]) {
  to[0] = *reinterpret_cast<const device float*>(from + 2);
}

[[kernel]] void write_to(device float* target [[buffer(0)]], device float* to [[buffer(1)]]) {
  target[0] = 1;
  to[0] = 1;
}

[[kernel]] void barrier_for_some(
    device float* to [[buffer(0)]],
    uint i [[thread_index_in_threadgroup]]) {
  if (i < 40) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  to[i] = i;
}

[[kernel]] void two_barriers(
    device float* to [[buffer(0)]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint i [[thread_index_in_threadgroup]]) {
  if (simdgroup == 0) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    to[i] = 0;
  } else {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    to[i] = 1;
  }
}

[[kernel]] void sum_for_some(
    device float* to [[buffer(0)]],
    uint lane [[thread_index_in_simdgroup]]) {
  to[lane] = lane < 16 ? simd_sum(1.0f) : 0;
}

[[kernel]] void two_sums(
    device float* to [[buffer(0)]],
    uint lane [[thread_index_in_simdgroup]]) {
  if (lane < 16) {
    to[lane] = simd_sum(1.0f);
  } else {
    to[lane] = simd_sum(2.0f);
  }
}

[[kernel]] void write_flag(device float* to [[buffer(0)]]) {
  to[0] = flag ? 1 : 2;
}

[[kernel]] void write_count(device int* to [[buffer(0)]]) {
  to[0] = count + 1;
}

[[kernel]] void gated(
    const device float* from [[buffer(0), function_constant(flag)]],
    device float* to [[buffer(1)]]) {
  to[0] = from[0];
}

[[kernel]] void pass_on(
    device float* to [[buffer(0)]],
    uint i [[thread_index_in_threadgroup]]) {
  threadgroup float values[64];
  values[i] = i;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  to[i] = values[i == 0 ? 0 : i - 1];
}

[[kernel]] void pass_on_without_barrier(
    device float* to [[buffer(0)]],
    uint i [[thread_index_in_threadgroup]]) {
  threadgroup float values[64];
  values[i] = i;
  to[i] = values[i == 0 ? 0 : i - 1];
}

[[kernel]] void overrun_threadgroup_memory(
    device float* to [[buffer(0)]],
    uint i [[thread_index_in_threadgroup]]) {
  threadgroup float values[32];
  values[i] = i;
  to[i] = values[i];
}

[[kernel]] void too_much_threadgroup_memory(device float* to [[buffer(0)]]) {
  threadgroup float first[8192];
  threadgroup float second[1];
  first[0] = second[0] = 1;
  to[0] = first[0];
}

[[kernel]] void all_write_the_first(device float* to [[buffer(0)]]) {
  to[0] = 1;
}

[[kernel, max_total_threads_per_threadgroup(64)]] void at_most_64(
    device float* to [[buffer(0)]],
    uint i [[thread_index_in_threadgroup]]) {
  to[i] = i;
}

[[kernel]] void where_threads_are(
    device uint* to [[buffer(0)]],
    uint3 position [[thread_position_in_grid]],
    uint3 threads [[threads_per_grid]],
    uint3 size [[threads_per_threadgroup]]) {
  const uint i = position.x + threads.x * position.y;
  to[2 * i] = i;
  to[2 * i + 1] = size.x * size.y;
}

[[kernel]] void exchange(
    device int* to [[buffer(0)]],
    uint lane [[thread_index_in_simdgroup]]) {
  const int value = lane;
  to[lane] = simd_shuffle_down(value, ushort(1));
  to[32 + lane] = simd_max(value) + simd_min(value) + simd_sum(value);
}
