// MLX's own kernels as the wheel has them, under names of their own.

#include <metal_stdlib>

#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/steel/gemm/gemm.h"
#include "mlx/backend/metal/kernels/quantized_utils.h"
#include "mlx/backend/metal/kernels/quantized.h"
#include "mlx/backend/metal/kernels/sdpa_vector.h"

using namespace metal;

// clang-format off
#define instantiate_upstream(type)                                               \
  instantiate_kernel("upstream_sdpa_vector_" #type "_64", sdpa_vector, type, 64) \
  instantiate_kernel("upstream_sdpa_vector_" #type "_128", sdpa_vector, type, 128) \
  instantiate_kernel("upstream_quantize_" #type "_64_8", affine_quantize, type, 64, 8) \
  instantiate_kernel("upstream_quantize_" #type "_64_4", affine_quantize, type, 64, 4)

instantiate_upstream(float)
instantiate_upstream(float16_t)
instantiate_upstream(bfloat16_t)
    // clang-format on
