#pragma once

#include <vector>

#include "functions.h"
#include "mlx/backend/cpu/encoder.h"

namespace h2o::cpu {

/// The elements of one head of a ledger's array [B, Hkv, ...].
template <class T>
T* head_of(mx::array& a, int batch, int head) {
  return a.data<T>() + batch * a.strides(0) + head * a.strides(1);
}

/// Runs `work(inputs, outputs)` on `stream` once what was dispatched before it is
/// done. The outputs must have their buffers; MLX keeps all buffers alive.
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

} // namespace h2o::cpu
