// As much of Metal as MLX's sdpa_vector.h uses, for a compiler of C++ that is to optimize
// it and not to run it: what other threads contribute is a call to a function that it
// cannot see into, and, as on a GPU, touches no memory.

#pragma once

#define device
#define constant
#define thread
#define threadgroup static

using uint = unsigned;
using size_t = decltype(sizeof(0));
using half = _Float16;
using bfloat = __bf16;

struct uint3 {
  uint x, y, z;
};

namespace metal {

enum class mem_flags { mem_threadgroup };

[[clang::convergent]] void threadgroup_barrier(mem_flags);
[[gnu::const, clang::convergent]] float simd_sum(float);
[[gnu::const, clang::convergent]] float simd_max(float);

namespace fast {
[[gnu::const]] float exp(float);
} // namespace fast

template <typename T>
T max(T a, T b) {
  return a > b ? a : b;
}

template <typename T>
T min(T a, T b) {
  return a < b ? a : b;
}

template <typename To, typename From>
To as_type(From value) {
  return __builtin_bit_cast(To, value);
}

} // namespace metal

template <typename T>
struct Limits;

template <>
struct Limits<float> {
  static constexpr float finite_min = -0x1.fffffep127f;
};

template <>
struct Limits<half> {
  static constexpr half finite_min = half(-65504.0f);
};

template <>
struct Limits<bfloat> {
  static constexpr bfloat finite_min = bfloat(-0x1.fep127f);
};

// Stands in for an argument whose function constant is off.
template <typename T>
[[gnu::const]] T absent();
