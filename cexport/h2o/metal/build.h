#pragma once

/// Whether this build can encode for Metal: on Apple's systems, unless MLX was built without
/// (H2O_CPU_ONLY), and in the tests' build that runs the kernels on the CPU.
#if (defined(__APPLE__) && !defined(H2O_CPU_ONLY)) || defined(H2O_METAL_HOST)
#define H2O_METAL 1
#else
#define H2O_METAL 0
#endif
