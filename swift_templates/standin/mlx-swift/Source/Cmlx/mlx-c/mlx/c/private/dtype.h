// Stands in for the dtype part of mlx-c v0.6.0's private/enums.h.
#pragma once

#include <array>

#include "mlx/c/array.h"
#include "mlx/dtype.h"

inline mlx::core::Dtype mlx_dtype_to_cpp(mlx_dtype type) {
  using namespace mlx::core;
  static const std::array<Dtype, 14> types = {bool_,   uint8,   uint16,   uint32,   uint64,
                                              int8,    int16,   int32,    int64,    float16,
                                              float32, float64, bfloat16, complex64};
  return types.at(type);
}

inline mlx_dtype mlx_dtype_to_c(mlx::core::Dtype type) {
  for (int value = MLX_BOOL; value < MLX_COMPLEX64; ++value) {
    if (mlx_dtype_to_cpp(mlx_dtype(value)) == type) {
      return mlx_dtype(value);
    }
  }
  return MLX_COMPLEX64;
}
