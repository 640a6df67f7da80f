#pragma once

/// Types of Metal for clang's C++ for OpenCL, whose address spaces are as incompatible as
/// Metal's. Only types matter here: nothing of this is ever executed.

#define __METAL__ 1
#define __METAL_VERSION__ 310
#define METAL_FUNC inline

#define device __global
#define threadgroup __local
#define thread __private
#define constant __constant

#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295u
#define FLT_MAX 3.40282346638528859811704183484516925e+38f
#define FLT_MIN 1.17549435082228750796873653722224567e-38f
#define FLT_EPSILON 1.1920928955078125e-7f

#pragma OPENCL EXTENSION cl_khr_fp16 : enable

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef ulong uint64_t;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;

#define H2O_VECTORS(type)                                   \
  typedef type type##2 __attribute__((ext_vector_type(2))); \
  typedef type type##3 __attribute__((ext_vector_type(3))); \
  typedef type type##4 __attribute__((ext_vector_type(4)));
H2O_VECTORS(uchar)
H2O_VECTORS(char)
H2O_VECTORS(ushort)
H2O_VECTORS(short)
H2O_VECTORS(uint)
H2O_VECTORS(int)
H2O_VECTORS(half)
H2O_VECTORS(float)
#undef H2O_VECTORS

/// Becomes a float by itself, as Metal's does, but is never made of a number unasked.
struct bfloat {
  ushort bits;

  bfloat() = default;
  constexpr bfloat(const bfloat& other) = default;
  constexpr bfloat(const constant bfloat& other) : bits(other.bits) {
  }
  template <typename T>
  explicit constexpr bfloat(T) : bits(0) {
  }
  constexpr operator float() const { // of a temporary
    return 0;
  }
  constexpr operator float() const thread {
    return 0;
  }
  constexpr operator float() const threadgroup {
    return 0;
  }
  constexpr operator float() const device {
    return 0;
  }
  constexpr operator float() const constant {
    return 0;
  }
  constexpr bfloat operator-() const {
    return *this;
  }
};

namespace metal {

using ::bfloat;
using ::uint;

template <typename T, int n>
using vec = T __attribute__((ext_vector_type(n)));

template <typename T, typename U>
constexpr constant bool is_same_v = __is_same(T, U);

template <typename From, typename To>
constexpr constant bool is_convertible_v = __is_convertible(From, To);

template <bool condition, typename T = void>
struct enable_if {};
template <typename T>
struct enable_if<true, T> {
  using type = T;
};
template <bool condition, typename T = void>
using enable_if_t = typename enable_if<condition, T>::type;

template <bool condition, typename T, typename U>
struct conditional {
  using type = T;
};
template <typename T, typename U>
struct conditional<false, T, U> {
  using type = U;
};
template <bool condition, typename T, typename U>
using conditional_t = typename conditional<condition, T, U>::type;

template <typename T>
struct numeric_limits {
  static constexpr T min() {
    return T(0);
  }
  static constexpr T max() {
    return T(1);
  }
  static constexpr T lowest() {
    return T(0);
  }
  static constexpr T infinity() {
    return T(1);
  }
};

} // namespace metal
