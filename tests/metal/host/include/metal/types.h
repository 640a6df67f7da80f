#pragma once

// Standard headers come before the address spaces, whose names they use for other things.
#include <climits>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "h2o_host/constants.h"
#include "h2o_host/kernel.h"
#include "h2o_host/lanes.h"

#define __METAL__ 1
#define METAL_FUNC inline __attribute__((always_inline))

// A pointer's address space is of no use on a CPU. What is `constant` must not be written.
#define device
#define thread
#define threadgroup
#define constant const

#define FLT_MAX __FLT_MAX__
#define FLT_MIN __FLT_MIN__
#define FLT_EPSILON __FLT_EPSILON__
#define HALF_MAX __FLT16_MAX__
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define M_PI_F 3.14159265358979323846f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.69314718055994530942f

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
typedef __bf16 bfloat;

template <typename To, typename From>
inline To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

namespace metal {

using std::conditional_t;
using std::enable_if;
using std::enable_if_t;
using std::false_type;
using std::integral_constant;
using std::is_convertible_v;
using std::is_floating_point;
using std::is_integral_v;
using std::is_same;
using std::is_same_v;
using std::is_signed_v;
using std::is_unsigned_v;
using std::make_unsigned_t;
using std::remove_reference_t;
using std::true_type;

template <typename T>
constexpr bool is_floating_point_v =
    std::is_floating_point_v<T> || is_same_v<T, half> || is_same_v<T, bfloat>;

template <typename T>
struct numeric_limits : std::numeric_limits<T> {};

template <>
struct numeric_limits<half> {
  static constexpr half max() {
    return half(65504.0f);
  }
  static constexpr half min() {
    return half(6.103515625e-5f);
  }
  static constexpr half lowest() {
    return half(-65504.0f);
  }
  static constexpr half epsilon() {
    return half(9.765625e-4f);
  }
  static constexpr half infinity() {
    return half(__builtin_inff());
  }
  static constexpr half quiet_NaN() {
    return half(__builtin_nanf(""));
  }
};

template <>
struct numeric_limits<bfloat> {
  static constexpr bfloat max() {
    return __builtin_bit_cast(bfloat, uint16_t(0x7f7f));
  }
  static constexpr bfloat min() {
    return __builtin_bit_cast(bfloat, uint16_t(0x0080));
  }
  static constexpr bfloat lowest() {
    return __builtin_bit_cast(bfloat, uint16_t(0xff7f));
  }
  static constexpr bfloat epsilon() {
    return __builtin_bit_cast(bfloat, uint16_t(0x3c00));
  }
  static constexpr bfloat infinity() {
    return __builtin_bit_cast(bfloat, uint16_t(0x7f80));
  }
  static constexpr bfloat quiet_NaN() {
    return __builtin_bit_cast(bfloat, uint16_t(0x7fc0));
  }
};

} // namespace metal
