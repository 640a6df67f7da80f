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

} // namespace h2o
