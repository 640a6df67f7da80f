#pragma once

#include "metal/types.h"

namespace metal {

template <typename T, int n>
struct vec;

template <typename T>
struct alignas(2 * sizeof(T)) vec<T, 2> {
  T x, y;

  constexpr vec() = default;
  constexpr vec(T value) : x(value), y(value) {
  }
  constexpr vec(T x, T y) : x(x), y(y) {
  }
  template <typename U>
  explicit constexpr vec(const vec<U, 2>& other) : x(T(other.x)), y(T(other.y)) {
  }
  constexpr T& operator[](int i) {
    return i == 0 ? x : y;
  }
  constexpr const T& operator[](int i) const {
    return i == 0 ? x : y;
  }
};

template <typename T>
struct alignas(4 * sizeof(T)) vec<T, 3> {
  T x, y, z;

  constexpr vec() = default;
  constexpr vec(T value) : x(value), y(value), z(value) {
  }
  constexpr vec(T x, T y, T z) : x(x), y(y), z(z) {
  }
  template <typename U>
  explicit constexpr vec(const vec<U, 3>& other)
      : x(T(other.x)), y(T(other.y)), z(T(other.z)) {
  }
  constexpr T& operator[](int i) {
    return i == 0 ? x : i == 1 ? y : z;
  }
  constexpr const T& operator[](int i) const {
    return i == 0 ? x : i == 1 ? y : z;
  }
};

template <typename T>
struct alignas(4 * sizeof(T)) vec<T, 4> {
  T x, y, z, w;

  constexpr vec() = default;
  constexpr vec(T value) : x(value), y(value), z(value), w(value) {
  }
  constexpr vec(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {
  }
  template <typename U>
  explicit constexpr vec(const vec<U, 4>& other)
      : x(T(other.x)), y(T(other.y)), z(T(other.z)), w(T(other.w)) {
  }
  constexpr T& operator[](int i) {
    return i == 0 ? x : i == 1 ? y : i == 2 ? z : w;
  }
  constexpr const T& operator[](int i) const {
    return i == 0 ? x : i == 1 ? y : i == 2 ? z : w;
  }
};

#define H2O_VECTOR_OPERATOR(op)                                             \
  template <typename T, int n>                                              \
  constexpr vec<T, n> operator op(vec<T, n> a, vec<T, n> b) {               \
    for (int i = 0; i < n; ++i) {                                           \
      a[i] = a[i] op b[i];                                                  \
    }                                                                       \
    return a;                                                               \
  }                                                                         \
  template <typename T, int n>                                              \
  constexpr vec<T, n> operator op(vec<T, n> a, std::type_identity_t<T> b) { \
    return a op vec<T, n>(b);                                               \
  }                                                                         \
  template <typename T, int n>                                              \
  constexpr vec<T, n> operator op(std::type_identity_t<T> a, vec<T, n> b) { \
    return vec<T, n>(a) op b;                                               \
  }                                                                         \
  template <typename T, int n, typename U>                                  \
  constexpr vec<T, n>& operator op## = (vec<T, n> & a, U b) {               \
    return a = a op b;                                                      \
  }

H2O_VECTOR_OPERATOR(+)
H2O_VECTOR_OPERATOR(-)
H2O_VECTOR_OPERATOR(*)
H2O_VECTOR_OPERATOR(/)
H2O_VECTOR_OPERATOR(&)
H2O_VECTOR_OPERATOR(|)
H2O_VECTOR_OPERATOR(>>)
H2O_VECTOR_OPERATOR(<<)
#undef H2O_VECTOR_OPERATOR

template <typename T, int n>
constexpr T dot(vec<T, n> a, vec<T, n> b) {
  T sum = 0;
  for (int i = 0; i < n; ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

} // namespace metal

#define H2O_VECTORS(type)              \
  using type##2 = metal::vec<type, 2>; \
  using type##3 = metal::vec<type, 3>; \
  using type##4 = metal::vec<type, 4>;

H2O_VECTORS(bool)
H2O_VECTORS(char)
H2O_VECTORS(uchar)
H2O_VECTORS(short)
H2O_VECTORS(ushort)
H2O_VECTORS(int)
H2O_VECTORS(uint)
H2O_VECTORS(long)
H2O_VECTORS(ulong)
H2O_VECTORS(half)
H2O_VECTORS(bfloat)
H2O_VECTORS(float)
#undef H2O_VECTORS
