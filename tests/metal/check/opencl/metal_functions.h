#pragma once

/// The functions of Metal's library that kernels use. A kernel that needs another one adds
/// its declaration here and its definition to metal/host.

#include "metal_types.h"

template <typename To, typename From>
constexpr To as_type(From) {
  static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
  return To();
}

/// Stands for the threadgroup memory of one variable: `bytes` is what it takes.
template <typename T, size_t bytes>
T* h2o_threadgroup_variable();

namespace metal {

#define H2O_UNARY(name) \
  float name(float x);  \
  half name(half x);    \
  bfloat name(bfloat x);
#define H2O_BINARY(name)        \
  float name(float x, float y); \
  half name(half x, half y);    \
  bfloat name(bfloat x, bfloat y);
#define H2O_BINARY_INTEGER(name)      \
  int name(int x, int y);             \
  uint name(uint x, uint y);          \
  int64_t name(int64_t x, int64_t y); \
  uint64_t name(uint64_t x, uint64_t y);

#define H2O_MATH(each)                                                                 \
  each(exp) each(exp2) each(log) each(log2) each(sqrt) each(rsqrt) each(sin) each(cos) \
      each(tanh) each(abs) each(fabs) each(floor) each(ceil) each(trunc) each(rint)    \
          each(round) each(sign)

H2O_MATH(H2O_UNARY)
H2O_BINARY(min)
H2O_BINARY(max)
H2O_BINARY(fmin)
H2O_BINARY(fmax)
H2O_BINARY(pow)
H2O_BINARY(atan2)
H2O_BINARY_INTEGER(min)
H2O_BINARY_INTEGER(max)
int abs(int x);
int clamp(int x, int low, int high);
uint clamp(uint x, uint low, uint high);
float clamp(float x, float low, float high);
float fma(float x, float y, float z);
float select(float x, float y, bool second);
int select(int x, int y, bool second);

namespace fast {
H2O_MATH(H2O_UNARY)
} // namespace fast
namespace precise {
H2O_MATH(H2O_UNARY)
} // namespace precise

#undef H2O_MATH
#undef H2O_UNARY
#undef H2O_BINARY
#undef H2O_BINARY_INTEGER

#define H2O_REDUCTION(name) \
  float name(float x);      \
  half name(half x);        \
  int name(int x);          \
  uint name(uint x);
H2O_REDUCTION(simd_sum)
H2O_REDUCTION(simd_product)
H2O_REDUCTION(simd_min)
H2O_REDUCTION(simd_max)
H2O_REDUCTION(simd_broadcast_first)
#undef H2O_REDUCTION
bool simd_any(bool x);
bool simd_all(bool x);

/// Metal shuffles scalars and vectors of at most 32 bits per element, except bool.
template <typename T>
T simd_shuffle(T x, ushort lane);
template <typename T>
T simd_shuffle_xor(T x, ushort mask);
template <typename T>
T simd_shuffle_up(T x, ushort delta);
template <typename T>
T simd_shuffle_down(T x, ushort delta);
template <typename T>
T simd_shuffle_and_fill_up(T x, T filling, ushort delta);
template <typename T>
T simd_broadcast(T x, ushort lane);

enum class mem_flags : uint {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
};
constexpr mem_flags operator|(mem_flags x, mem_flags y) {
  return mem_flags(uint(x) | uint(y));
}
void threadgroup_barrier(mem_flags flags);
void simdgroup_barrier(mem_flags flags);

} // namespace metal
