#pragma once

#include <metal_stdlib>

using namespace metal;

/// MLX's names of the types that kernels are instantiated for, beside float.
typedef half float16_t;
typedef bfloat bfloat16_t;

/// The stored logit of a hidden row, and the initial value of a maximum.
#define H2O_LOWEST (-FLT_MAX)
