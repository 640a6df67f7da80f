#pragma once

#ifdef __APPLE__
#include <TargetConditionals.h>
#endif

/// Whether this build can encode for Metal: on Apple's devices, unless MLX was built without
/// (H2O_CPU_ONLY), and in the tests' build that runs the kernels on the CPU. MLX does not start
/// on the GPU of a simulator.
#if defined(H2O_METAL_HOST) || \
    (defined(__APPLE__) && !TARGET_OS_SIMULATOR && !defined(H2O_CPU_ONLY))
#define H2O_METAL 1
#else
#define H2O_METAL 0
#endif
