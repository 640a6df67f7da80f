#pragma once

#ifdef __APPLE__
#include <TargetConditionals.h>
#endif

/// Whether this build encodes Metal kernels: on Apple's devices, unless MLX was built
/// without Metal (H2O_CPU_ONLY), and in the build for tests that runs the kernels on the
/// CPU. Simulators are built without Metal, because MLX cannot use their GPU.
#if defined(H2O_METAL_HOST) || \
    (defined(__APPLE__) && !TARGET_OS_SIMULATOR && !defined(H2O_CPU_ONLY))
#define H2O_METAL 1
#else
#define H2O_METAL 0
#endif
