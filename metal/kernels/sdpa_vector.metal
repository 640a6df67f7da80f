// MLX's attention with our edits, for builds whose MLX has it compiled without them.

#include <metal_stdlib>

#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/sdpa_vector.h"

using namespace metal;

// clang-format off
#define instantiate_attention(type, dim)                                   \
  instantiate_kernel("sdpa_vector_" #type "_" #dim "_" #dim,               \
                     sdpa_vector, type, dim, dim)                          \
  instantiate_kernel("sdpa_vector_2pass_1_" #type "_" #dim "_" #dim,       \
                     sdpa_vector_2pass_1, type, dim, dim)                  \
  instantiate_kernel("sdpa_vector_2pass_2_" #type "_" #dim,                \
                     sdpa_vector_2pass_2, type, dim)

#define instantiate_attentions(type) \
  instantiate_attention(type, 64)    \
  instantiate_attention(type, 96)    \
  instantiate_attention(type, 128)   \
  instantiate_attention(type, 256)

instantiate_attentions(float)
instantiate_attentions(bfloat16_t)
instantiate_attentions(float16_t)
    // clang-format on
