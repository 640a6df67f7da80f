#pragma once

#include "metal/types.h"
#include "metal/vectors.h"

// Every function below is a point that all lanes of a simdgroup must reach.
#define H2O_SIMD H2O_MEETING H2O_UNINSTRUMENTED
#define H2O_SITE __builtin_return_address(0)

namespace h2o::host {

template <typename T>
H2O_UNINSTRUMENTED T of_lane(const Lanes& lanes, int lane) {
  if (lane < 0 || lane >= Lanes::width || !((lanes.present >> lane) & 1)) {
    // Metal leaves it undefined: a value that no test will expect.
    T garbage;
    __builtin_memset(static_cast<void*>(&garbage), 0xa5, sizeof(T));
    return garbage;
  }
  return lanes.at<T>(lane);
}

template <typename T>
H2O_MEETING H2O_UNINSTRUMENTED const Lanes& exchange(
    const char* operation, const void* site, T value) {
  static_assert(sizeof(T) <= Lanes::max_bytes);
  return meet(operation, site, &value, sizeof(T), nullptr);
}

/// Halves the lanes until one value is left, as a GPU does.
template <typename T, T (*combine)(T, T)>
H2O_UNINSTRUMENTED void reduce(Lanes& lanes) {
  T values[Lanes::width];
  int count = 0;
  for (int lane = 0; lane < Lanes::width; ++lane) {
    if ((lanes.present >> lane) & 1) {
      values[count++] = lanes.at<T>(lane);
    }
  }
  while (count > 1) {
    const int half_count = (count + 1) / 2;
    for (int i = 0; i + half_count < count; ++i) {
      values[i] = combine(values[i], values[i + half_count]);
    }
    count = half_count;
  }
  *reinterpret_cast<T*>(lanes.out) = values[0];
}

#define H2O_COMBINE(name, expression)                       \
  template <typename T>                                     \
  __attribute__((no_sanitize("thread"))) T name(T a, T b) { \
    return static_cast<T>(expression);                      \
  }
H2O_COMBINE(add, a + b)
H2O_COMBINE(multiply, a* b)
H2O_COMBINE(lesser, b < a ? b : a)
H2O_COMBINE(greater, a < b ? b : a)
H2O_COMBINE(both, a& b)
H2O_COMBINE(either, a | b)
H2O_COMBINE(differing, a ^ b)
#undef H2O_COMBINE

} // namespace h2o::host

namespace metal {

enum class mem_flags {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
};

constexpr mem_flags operator|(mem_flags a, mem_flags b) {
  return static_cast<mem_flags>(static_cast<int>(a) | static_cast<int>(b));
}

H2O_SIMD inline void threadgroup_barrier(mem_flags) {
  h2o::host::wait_for_threadgroup(H2O_SITE);
}

H2O_SIMD inline void simdgroup_barrier(mem_flags) {
  h2o::host::meet("simdgroup_barrier", H2O_SITE, nullptr, 0, nullptr);
}

#define H2O_REDUCTION(name, combine)                                                       \
  template <typename T>                                                                    \
  H2O_SIMD T name(T value) {                                                               \
    static_assert(sizeof(T) <= h2o::host::Lanes::max_bytes);                               \
    const auto& lanes = h2o::host::meet(                                                   \
        #name, H2O_SITE, &value, sizeof(T), &h2o::host::reduce<T, h2o::host::combine<T>>); \
    return *reinterpret_cast<const T*>(lanes.out);                                         \
  }
H2O_REDUCTION(simd_sum, add)
H2O_REDUCTION(simd_product, multiply)
H2O_REDUCTION(simd_min, lesser)
H2O_REDUCTION(simd_max, greater)
H2O_REDUCTION(simd_and, both)
H2O_REDUCTION(simd_or, either)
H2O_REDUCTION(simd_xor, differing)
#undef H2O_REDUCTION

#define H2O_SHUFFLE(name, source)                                    \
  template <typename T>                                              \
  H2O_SIMD T name(T value, ushort given) {                           \
    const auto& lanes = h2o::host::exchange(#name, H2O_SITE, value); \
    [[maybe_unused]] const int lane = h2o::host::lane_index();       \
    return h2o::host::of_lane<T>(lanes, source);                     \
  }
H2O_SHUFFLE(simd_shuffle, given)
H2O_SHUFFLE(simd_broadcast, given)
H2O_SHUFFLE(simd_shuffle_down, lane + given)
H2O_SHUFFLE(simd_shuffle_up, lane - given)
H2O_SHUFFLE(simd_shuffle_xor, lane ^ given)
H2O_SHUFFLE(simd_shuffle_rotate_down, (lane + given) % 32)
H2O_SHUFFLE(simd_shuffle_rotate_up, (lane + 32 - given) % 32)
#undef H2O_SHUFFLE

template <typename T>
H2O_SIMD T simd_broadcast_first(T value) {
  return h2o::host::of_lane<T>(
      h2o::host::exchange("simd_broadcast_first", H2O_SITE, value), 0);
}

template <typename T>
H2O_SIMD T simd_shuffle_and_fill_down(T value, T filling, ushort delta) {
  struct Both {
    T value, filling;
  };
  const auto& lanes =
      h2o::host::exchange("simd_shuffle_and_fill_down", H2O_SITE, Both{value, filling});
  const int from = h2o::host::lane_index() + delta;
  return from < 32 ? h2o::host::of_lane<Both>(lanes, from).value
                   : h2o::host::of_lane<Both>(lanes, from - 32).filling;
}

template <typename T>
H2O_SIMD T simd_shuffle_and_fill_up(T value, T filling, ushort delta) {
  struct Both {
    T value, filling;
  };
  const auto& lanes =
      h2o::host::exchange("simd_shuffle_and_fill_up", H2O_SITE, Both{value, filling});
  const int from = h2o::host::lane_index() - delta;
  return from >= 0 ? h2o::host::of_lane<Both>(lanes, from).value
                   : h2o::host::of_lane<Both>(lanes, from + 32).filling;
}

#define H2O_PREFIX(name, combine, first, last)                               \
  template <typename T>                                                      \
  H2O_SIMD T name(T value) {                                                 \
    const auto& lanes = h2o::host::exchange(#name, H2O_SITE, value);         \
    const int lane = h2o::host::lane_index();                                \
    T total = first;                                                         \
    for (int i = 0; i < last; ++i) {                                         \
      total = h2o::host::combine<T>(total, h2o::host::of_lane<T>(lanes, i)); \
    }                                                                        \
    return total;                                                            \
  }
H2O_PREFIX(simd_prefix_inclusive_sum, add, 0, lane + 1)
H2O_PREFIX(simd_prefix_exclusive_sum, add, 0, lane)
H2O_PREFIX(simd_prefix_inclusive_product, multiply, 1, lane + 1)
H2O_PREFIX(simd_prefix_exclusive_product, multiply, 1, lane)
#undef H2O_PREFIX

/// Declared only, for headers that mention it: a kernel that uses it does not link.
template <typename T>
T quad_sum(T value);

H2O_SIMD inline ulong simd_ballot(bool vote) {
  const auto& lanes = h2o::host::exchange("simd_ballot", H2O_SITE, vote);
  ulong votes = 0;
  for (int lane = 0; lane < 32; ++lane) {
    votes |= ulong(((lanes.present >> lane) & 1) && lanes.at<bool>(lane)) << lane;
  }
  return votes;
}

H2O_SIMD inline bool simd_any(bool vote) {
  const auto& lanes = h2o::host::meet(
      "simd_any", H2O_SITE, &vote, 1,
      &h2o::host::reduce<unsigned char, h2o::host::either<unsigned char>>);
  return lanes.out[0] != 0;
}

H2O_SIMD inline bool simd_all(bool vote) {
  const auto& lanes = h2o::host::meet(
      "simd_all", H2O_SITE, &vote, 1,
      &h2o::host::reduce<unsigned char, h2o::host::both<unsigned char>>);
  return lanes.out[0] != 0;
}

} // namespace metal

#undef H2O_SIMD
#undef H2O_SITE
