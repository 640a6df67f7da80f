#pragma once

#include "functions.h"

#ifdef H2O_METAL_HOST
#include "evaluate.h"
#endif

/// Which streams our Metal kernels evaluate.
namespace h2o {

#ifdef H2O_METAL_HOST

/// In the tests' build the kernels run on the CPU, and so serve every stream.
inline bool on_gpu(mx::Stream) {
  return true;
}

template <class Primitive>
using Placed = host::OnHost<Primitive>;

#else

inline bool on_gpu(mx::Stream stream) {
  return stream.device == mx::Device::gpu;
}

template <class Primitive>
using Placed = Primitive;

#endif

} // namespace h2o
