#pragma once

#include <metal_stdlib>

using namespace metal;

/// MLX's names of the types that kernels are instantiated for, beside float.
typedef half float16_t;
typedef bfloat bfloat16_t;

/// What a logit is stored as where its row is hidden, and where the largest one starts.
#define H2O_LOWEST (-FLT_MAX)
