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
#define H2O_BINARY(name)           \
  float name(float x, float y);    \
  half name(half x, half y);       \
  bfloat name(bfloat x, bfloat y); \
  int name(int x, int y);          \
  uint name(uint x, uint y);
#define H2O_REDUCTION(name) \
  float name(float x);      \
  half name(half x);        \
  int name(int x);          \
  uint name(uint x);

H2O_UNARY(abs)
H2O_UNARY(round)
H2O_UNARY(sqrt)
int abs(int x);
H2O_BINARY(min)
H2O_BINARY(max)
int clamp(int x, int low, int high);
float clamp(float x, float low, float high);

namespace fast {
H2O_UNARY(exp)
} // namespace fast

H2O_REDUCTION(simd_sum)
H2O_REDUCTION(simd_min)
H2O_REDUCTION(simd_max)

#undef H2O_UNARY
#undef H2O_BINARY
#undef H2O_REDUCTION

/// Metal shuffles scalars and vectors of at most 32 bits per element, except bool.
template <typename T>
T simd_shuffle_down(T x, ushort delta);

enum class mem_flags : uint {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
};
void threadgroup_barrier(mem_flags flags);

} // namespace metal
