// The H2O cache's own kernels, for every type of MLX's attention.

#include <metal_stdlib>

// MLX's headers lie flat beside this file in mlx-swift, in their own tree elsewhere.
#if __has_include("utils.h")
#include "utils.h"
#include "sdpa_vector.h"
#else
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/sdpa_vector.h"
#endif

#include "h2o_parameters.h"
#include "h2o_vectors.h"
#include "h2o_write_row.h"
#include "h2o_update_ledger.h"
#include "sdpa_vector_quantized.h"

using namespace metal;

// clang-format off
#define instantiate_h2o_attention(type, dim)                       \
  instantiate_kernel("sdpa_vector_quantized_" #type "_" #dim,      \
                     sdpa_vector_quantized, type, dim)             \
  instantiate_kernel("sdpa_vector_2pass_1_quantized_" #type "_" #dim, \
                     sdpa_vector_2pass_1_quantized, type, dim)

#define instantiate_h2o(type)                                      \
  instantiate_kernel("h2o_write_row_" #type, h2o_write_row, type)  \
  instantiate_kernel("h2o_update_ledger_" #type, h2o_update_ledger, type) \
  instantiate_h2o_attention(type, 64)                              \
  instantiate_h2o_attention(type, 96)                              \
  instantiate_h2o_attention(type, 128)                             \
  instantiate_h2o_attention(type, 256)

instantiate_h2o(float)
instantiate_h2o(bfloat16_t)
instantiate_h2o(float16_t)

instantiate_kernel("h2o_copy_1", h2o_copy, uint8_t)
instantiate_kernel("h2o_copy_2", h2o_copy, uint16_t)
instantiate_kernel("h2o_copy_4", h2o_copy, uint32_t)
    // clang-format on
