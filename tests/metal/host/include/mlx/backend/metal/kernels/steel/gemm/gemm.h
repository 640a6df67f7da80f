#pragma once

#include <metal_stdlib>

#include "mlx/backend/metal/kernels/steel/utils.h"

// Declared only, so that headers that mention MLX's matrix products can be read: a kernel
// that uses them does not compile on the host.
namespace mlx::steel {

template <typename T, typename U, auto...>
struct BlockMMA;

template <typename T, auto...>
struct BlockLoader;

} // namespace mlx::steel
