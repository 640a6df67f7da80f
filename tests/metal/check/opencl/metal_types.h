#pragma once

/// Types of Metal for clang's C++ for OpenCL, whose address spaces are as incompatible as
/// Metal's. Only types matter here: nothing of this is ever executed.

#define device __global
#define threadgroup __local
#define thread __private
#define constant __constant

#define FLT_MAX 3.40282346638528859811704183484516925e+38f

#pragma OPENCL EXTENSION cl_khr_fp16 : enable

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef int int32_t;
typedef long int64_t;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef unsigned long uint64_t;
typedef __SIZE_TYPE__ size_t;
typedef uint uint3 __attribute__((ext_vector_type(3)));

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
};
