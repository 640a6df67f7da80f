// MLX's own kernels as the wheel has them, under names of their own.

#include <metal_stdlib>

using namespace metal;

typedef half float16_t;
typedef bfloat bfloat16_t;

// Of MLX's utils.h. No test masks with floats, for which finite_min is a half's own.
template <typename T>
struct Limits {
  static constexpr float max = __builtin_inff();
  static constexpr float finite_min = -FLT_MAX;
};

#include "quantized.h"
#include "sdpa_vector.h"

// clang-format off
template [[host_name("upstream_sdpa_vector_float_64")]] [[kernel]] decltype(sdpa_vector<float, 64>) sdpa_vector<float, 64>;
template [[host_name("upstream_sdpa_vector_float_128")]] [[kernel]] decltype(sdpa_vector<float, 128>) sdpa_vector<float, 128>;
template [[host_name("upstream_sdpa_vector_float16_t_64")]] [[kernel]] decltype(sdpa_vector<float16_t, 64>) sdpa_vector<float16_t, 64>;
template [[host_name("upstream_sdpa_vector_float16_t_128")]] [[kernel]] decltype(sdpa_vector<float16_t, 128>) sdpa_vector<float16_t, 128>;
template [[host_name("upstream_sdpa_vector_bfloat16_t_64")]] [[kernel]] decltype(sdpa_vector<bfloat16_t, 64>) sdpa_vector<bfloat16_t, 64>;
template [[host_name("upstream_sdpa_vector_bfloat16_t_128")]] [[kernel]] decltype(sdpa_vector<bfloat16_t, 128>) sdpa_vector<bfloat16_t, 128>;
template [[host_name("upstream_quantize_float_64_8")]] [[kernel]] decltype(affine_quantize<float, 64, 8>) affine_quantize<float, 64, 8>;
template [[host_name("upstream_quantize_float_64_4")]] [[kernel]] decltype(affine_quantize<float, 64, 4>) affine_quantize<float, 64, 4>;
    // clang-format on
