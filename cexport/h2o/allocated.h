#pragma once

#include <new>

#include "mlx_version.h"

namespace h2o {

/// Memory of so many bytes. MLX gives a null pointer where there is not as much.
inline Memory allocated(size_t bytes) {
  Memory memory = mx::allocator::malloc(bytes);
  if (bytes > 0 && !has_memory(memory)) {
    throw std::bad_alloc();
  }
  return memory;
}

/// Memory for an array. Its shape may come from a broadcast one, whose size overflows.
inline Memory allocated(const mx::array& a) {
  size_t bytes = a.itemsize();
  for (int size : a.shape()) {
    if (__builtin_mul_overflow(bytes, size_t(size), &bytes)) {
      throw std::bad_alloc();
    }
  }
  return allocated(bytes);
}

/// An array whose elements the host writes at once.
inline mx::array host_array(const mx::Shape& shape, mx::Dtype dtype) {
  mx::array a(shape, dtype, nullptr, {});
  a.set_data(allocated(a));
  a.set_status(mx::array::Status::available);
  return a;
}

} // namespace h2o
