#pragma once

#include <new>
#include <vector>

#include "functions.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx_version.h"

#ifdef H2O_METAL_HOST
#include "evaluate.h"
#endif

/// Functions that our primitives share: memory, the streams on which Metal kernels run,
/// and execution on the CPU.
namespace h2o {

/// Allocates memory and checks it, because MLX returns a null pointer if there is too
/// little.
inline Memory allocated(size_t bytes) {
  Memory memory = mx::allocator::malloc(bytes);
  if (bytes > 0 && !has_memory(memory)) {
    throw std::bad_alloc();
  }
  return memory;
}

/// Allocates memory for an array. A broadcast shape may have a size that overflows.
inline Memory allocated(const mx::array& a) {
  size_t bytes = a.itemsize();
  for (int size : a.shape()) {
    if (__builtin_mul_overflow(bytes, size_t(size), &bytes)) {
      throw std::bad_alloc();
    }
  }
  return allocated(bytes);
}

/// Makes an array whose elements the host writes immediately.
inline mx::array host_array(const mx::Shape& shape, mx::Dtype dtype) {
  mx::array a(shape, dtype, nullptr, {});
  a.set_data(allocated(a));
  a.set_status(mx::array::Status::available);
  return a;
}

#ifdef H2O_METAL_HOST

/// In the build for tests the kernels run on the CPU, so they serve every stream.
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

namespace cpu {

/// The elements of one head of a ledger's array [B, Hkv, ...].
template <class T>
T* head_of(mx::array& a, int batch, int head) {
  return a.data<T>() + batch * a.strides(0) + head * a.strides(1);
}

/// Runs `work(inputs, outputs)` on `stream` after the work dispatched before it. The
/// outputs must have buffers; MLX keeps all buffers alive.
template <class Work>
void dispatch(
    mx::Stream stream,
    const std::vector<mx::array>& inputs,
    std::vector<mx::array>& outputs,
    Work work) {
  auto& encoder = mx::cpu::get_command_encoder(stream);
  std::vector<mx::array> in, out;
  for (const auto& input : inputs) {
    encoder.set_input_array(input);
    in.push_back(mx::array::unsafe_weak_copy(input));
  }
  for (auto& output : outputs) {
    encoder.set_output_array(output);
    out.push_back(mx::array::unsafe_weak_copy(output));
  }
  encoder.dispatch([in = std::move(in), out = std::move(out),
                    work = std::move(work)]() mutable { work(in, out); });
}

} // namespace cpu
} // namespace h2o
