#pragma once

#include "metal/types.h"

// Overloads and not templates, as in Metal: a function constant converts to their types.
// Halves and bfloats are computed in float and rounded once.
namespace metal {

#define H2O_UNARY_FOR(name, type, expression)  \
  inline type name(type given) {               \
    const float x = static_cast<float>(given); \
    return static_cast<type>(expression);      \
  }
#define H2O_UNARY(name, expression)      \
  H2O_UNARY_FOR(name, float, expression) \
  H2O_UNARY_FOR(name, half, expression)  \
  H2O_UNARY_FOR(name, bfloat, expression)

#define H2O_BINARY_FOR(name, type, expression) \
  inline type name(type left, type right) {    \
    const float x = static_cast<float>(left);  \
    const float y = static_cast<float>(right); \
    return static_cast<type>(expression);      \
  }
#define H2O_BINARY(name, expression)      \
  H2O_BINARY_FOR(name, float, expression) \
  H2O_BINARY_FOR(name, half, expression)  \
  H2O_BINARY_FOR(name, bfloat, expression)

#define H2O_MATH                                  \
  H2O_UNARY(exp, __builtin_expf(x))               \
  H2O_UNARY(exp2, __builtin_exp2f(x))             \
  H2O_UNARY(exp10, __builtin_powf(10.0f, x))      \
  H2O_UNARY(log, __builtin_logf(x))               \
  H2O_UNARY(log2, __builtin_log2f(x))             \
  H2O_UNARY(log10, __builtin_log10f(x))           \
  H2O_UNARY(sqrt, __builtin_sqrtf(x))             \
  H2O_UNARY(rsqrt, 1.0f / __builtin_sqrtf(x))     \
  H2O_UNARY(sin, __builtin_sinf(x))               \
  H2O_UNARY(cos, __builtin_cosf(x))               \
  H2O_UNARY(tan, __builtin_tanf(x))               \
  H2O_UNARY(sinh, __builtin_sinhf(x))             \
  H2O_UNARY(cosh, __builtin_coshf(x))             \
  H2O_UNARY(tanh, __builtin_tanhf(x))             \
  H2O_UNARY(asin, __builtin_asinf(x))             \
  H2O_UNARY(acos, __builtin_acosf(x))             \
  H2O_UNARY(atan, __builtin_atanf(x))             \
  H2O_UNARY(floor, __builtin_floorf(x))           \
  H2O_UNARY(ceil, __builtin_ceilf(x))             \
  H2O_UNARY(trunc, __builtin_truncf(x))           \
  H2O_UNARY(rint, __builtin_rintf(x))             \
  H2O_UNARY(round, __builtin_roundf(x))           \
  H2O_UNARY(fract, x - __builtin_floorf(x))       \
  H2O_UNARY(fabs, __builtin_fabsf(x))             \
  H2O_UNARY(abs, __builtin_fabsf(x))              \
  H2O_BINARY(pow, __builtin_powf(x, y))           \
  H2O_BINARY(atan2, __builtin_atan2f(x, y))       \
  H2O_BINARY(fmod, __builtin_fmodf(x, y))         \
  H2O_BINARY(copysign, __builtin_copysignf(x, y)) \
  H2O_BINARY(fmin, __builtin_fminf(x, y))         \
  H2O_BINARY(fmax, __builtin_fmaxf(x, y))         \
  H2O_BINARY(min, __builtin_fminf(x, y))          \
  H2O_BINARY(max, __builtin_fmaxf(x, y))

H2O_MATH

namespace fast {
H2O_MATH
} // namespace fast

namespace precise {
H2O_MATH
} // namespace precise

#undef H2O_MATH
#undef H2O_BINARY
#undef H2O_BINARY_FOR
#undef H2O_UNARY
#undef H2O_UNARY_FOR

#define H2O_FLOAT(type)                                                        \
  inline bool isnan(type x) {                                                  \
    return __builtin_isnan(static_cast<float>(x));                             \
  }                                                                            \
  inline bool isinf(type x) {                                                  \
    return __builtin_isinf(static_cast<float>(x));                             \
  }                                                                            \
  inline bool isfinite(type x) {                                               \
    return __builtin_isfinite(static_cast<float>(x));                          \
  }                                                                            \
  inline bool signbit(type x) {                                                \
    return __builtin_signbit(static_cast<float>(x));                           \
  }                                                                            \
  inline type fma(type a, type b, type c) {                                    \
    return static_cast<type>(__builtin_fmaf(                                   \
        static_cast<float>(a), static_cast<float>(b), static_cast<float>(c))); \
  }                                                                            \
  inline type mix(type a, type b, type t) {                                    \
    return a + (b - a) * t;                                                    \
  }                                                                            \
  inline type clamp(type x, type low, type high) {                             \
    return min(max(x, low), high);                                             \
  }
H2O_FLOAT(float)
H2O_FLOAT(half)
H2O_FLOAT(bfloat)
#undef H2O_FLOAT

#define H2O_INTEGER(type)                                                         \
  inline type min(type a, type b) {                                               \
    return b < a ? b : a;                                                         \
  }                                                                               \
  inline type max(type a, type b) {                                               \
    return a < b ? b : a;                                                         \
  }                                                                               \
  inline type clamp(type x, type low, type high) {                                \
    return min(max(x, low), high);                                                \
  }                                                                               \
  inline type abs(type x) {                                                       \
    return x < static_cast<type>(0) ? static_cast<type>(-x) : x;                  \
  }                                                                               \
  inline type popcount(type x) {                                                  \
    return static_cast<type>(__builtin_popcountg(std::make_unsigned_t<type>(x))); \
  }
H2O_INTEGER(signed char)
H2O_INTEGER(uchar)
H2O_INTEGER(short)
H2O_INTEGER(ushort)
H2O_INTEGER(int)
H2O_INTEGER(uint)
H2O_INTEGER(long)
H2O_INTEGER(ulong)
#undef H2O_INTEGER

template <typename T>
inline T select(T otherwise, T chosen, bool condition) {
  return condition ? chosen : otherwise;
}

} // namespace metal
