#pragma once

// Metal's types and functions as far as kernels here use them.

// Standard headers come before the address spaces, whose names they use for other things.
#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "h2o_host/kernel.h"

// A pointer's address space is of no use on a CPU. What is `constant` must not be written.
#define device
#define thread
#define threadgroup
#define constant const

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef _Float16 half;
typedef __bf16 bfloat;

struct alignas(8) uint2 {
  uint x, y;
};

struct alignas(16) uint3 {
  uint x, y, z;
};

template <typename To, typename From>
inline To as_type(From from) {
  return __builtin_bit_cast(To, from);
}

namespace metal {

using std::conditional_t;

// Overloads and not templates, as in Metal: a function constant converts to their types.
inline float sqrt(float x) {
  return __builtin_sqrtf(x);
}
inline float round(float x) {
  return __builtin_roundf(x);
}
inline float abs(float x) {
  return __builtin_fabsf(x);
}
inline float min(float a, float b) {
  return __builtin_fminf(a, b);
}
inline float max(float a, float b) {
  return __builtin_fmaxf(a, b);
}
inline int min(int a, int b) {
  return b < a ? b : a;
}
inline int max(int a, int b) {
  return a < b ? b : a;
}
inline int clamp(int x, int low, int high) {
  return min(max(x, low), high);
}

namespace fast {
inline float exp(float x) {
  return __builtin_expf(x);
}
} // namespace fast

enum class mem_flags { mem_none, mem_device, mem_threadgroup };

// Every function below is a point that all lanes of a simdgroup must reach.
#define H2O_SIMD H2O_MEETING H2O_UNINSTRUMENTED
#define H2O_SITE __builtin_return_address(0)

H2O_SIMD inline void threadgroup_barrier(mem_flags) {
  h2o::host::wait_for_threadgroup(H2O_SITE);
}

template <typename T>
H2O_SIMD T simd_sum(T value) {
  return h2o::host::reduced<T, h2o::host::sum<T>>("simd_sum", H2O_SITE, value);
}

template <typename T>
H2O_SIMD T simd_min(T value) {
  return h2o::host::reduced<T, h2o::host::lesser<T>>("simd_min", H2O_SITE, value);
}

template <typename T>
H2O_SIMD T simd_max(T value) {
  return h2o::host::reduced<T, h2o::host::greater<T>>("simd_max", H2O_SITE, value);
}

template <typename T>
H2O_SIMD T simd_shuffle_down(T value, ushort delta) {
  const h2o::host::Lanes& lanes =
      h2o::host::meet("simd_shuffle_down", H2O_SITE, &value, sizeof(T), nullptr);
  const int lane = h2o::host::lane_index() + delta;
  if (lane < h2o::host::Lanes::width && ((lanes.present >> lane) & 1)) {
    return lanes.at<T>(lane);
  }
  // Metal leaves it undefined: a value that no test will expect.
  T garbage;
  __builtin_memset(static_cast<void*>(&garbage), 0xa5, sizeof(T));
  return garbage;
}

#undef H2O_SIMD
#undef H2O_SITE

} // namespace metal
