#pragma once

// MLX's defines Metal's functions for bfloat through the compiler's own; <metal_stdlib>
// here has them.
#include <metal_stdlib>
