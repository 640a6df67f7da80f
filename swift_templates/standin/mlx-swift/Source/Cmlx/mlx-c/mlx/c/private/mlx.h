// A stand-in for the private headers of mlx-c v0.6.0: conversions between its handles and MLX's C++
// objects, and between its dtypes and MLX's.
#pragma once

#include <array>
#include <stdexcept>
#include <utility>
#include <vector>

#include "mlx/array.h"
#include "mlx/c/array.h"
#include "mlx/c/error.h"
#include "mlx/c/stream.h"
#include "mlx/c/vector.h"
#include "mlx/dtype.h"
#include "mlx/stream.h"

inline mlx::core::array& mlx_array_get_(mlx_array d) {
  if (!d.ctx) {
    throw std::invalid_argument("an argument of type mlx_array is empty");
  }
  return *static_cast<mlx::core::array*>(d.ctx);
}

inline mlx_array& mlx_array_set_(mlx_array& d, mlx::core::array s) {
  if (d.ctx) {
    mlx_array_get_(d) = std::move(s);
  } else {
    d.ctx = new mlx::core::array(std::move(s));
  }
  return d;
}

inline mlx::core::Stream& mlx_stream_get_(mlx_stream d) {
  if (!d.ctx) {
    throw std::invalid_argument("an argument of type mlx_stream is empty");
  }
  return *static_cast<mlx::core::Stream*>(d.ctx);
}

inline std::vector<mlx::core::array>& mlx_vector_array_get_(mlx_vector_array d) {
  if (!d.ctx) {
    throw std::invalid_argument("an argument of type mlx_vector_array is empty");
  }
  return *static_cast<std::vector<mlx::core::array>*>(d.ctx);
}

inline mlx_vector_array& mlx_vector_array_set_(
    mlx_vector_array& d, std::vector<mlx::core::array> s) {
  if (d.ctx) {
    mlx_vector_array_get_(d) = std::move(s);
  } else {
    d.ctx = new std::vector<mlx::core::array>(std::move(s));
  }
  return d;
}

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

/// Returns the value of `body`. If `body` throws, reports the exception and returns `otherwise`.
template <class Body, class T>
T mlx_guarded_(Body body, T otherwise) {
  try {
    return body();
  } catch (const std::exception& e) {
    mlx_error("%s", e.what());
    return otherwise;
  }
}

/// Runs `body` and returns 0. If `body` throws, reports the exception and returns 1.
template <class Body>
int mlx_status_(Body body) {
  return mlx_guarded_(
      [&] {
        body();
        return 0;
      },
      1);
}
