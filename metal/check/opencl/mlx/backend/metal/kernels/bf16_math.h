#pragma once

/// MLX's file defines mathematical functions of bfloat by built-in ones of Apple's compiler;
/// metal_functions.h declares those that kernels use.
