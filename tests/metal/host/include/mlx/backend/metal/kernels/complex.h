#pragma once

#include <metal_stdlib>

// MLX's overloads its members by address space, which would be the same member here. No
// kernel in this project computes with complex numbers.
template <typename T>
struct complex_t {
  T real;
  T imag;

  constexpr complex_t(T real, T imag) : real(real), imag(imag) {
  }
};

using complex64_t = complex_t<float>;
