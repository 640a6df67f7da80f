#pragma once

#include <string>
#include <vector>

#include "mlx/array.h"

namespace h2o::host {

/// Calls eval_gpu between checks; on an exception it leaves an empty encoder behind.
void evaluate(
    mlx::core::Stream stream,
    const std::vector<mlx::core::array>& inputs,
    std::vector<mlx::core::array>& outputs,
    void (*eval_gpu)(
        void* primitive,
        const std::vector<mlx::core::array>&,
        std::vector<mlx::core::array>&),
    void* primitive);

/// A primitive whose GPU path runs where MLX calls for the CPU's.
template <class Primitive>
class OnHost : public Primitive {
 public:
  using Primitive::Primitive;

  void eval_cpu(
      const std::vector<mlx::core::array>& inputs,
      std::vector<mlx::core::array>& outputs) override {
    evaluate(
        this->stream(), inputs, outputs,
        [](void* primitive, const auto& in, auto& out) {
          static_cast<OnHost*>(primitive)->Primitive::eval_gpu(in, out);
        },
        this);
  }
};

/// Ends the command buffer of every stream that has one, as MLX does after each eval.
void commit_all();

/// Command buffers committed so far, on all streams.
int commits();

/// Waits for everything that was dispatched.
void wait_for_all();

/// Of the device that MLX asks for, as applegpu_g16p.
void set_architecture(const std::string& name);

} // namespace h2o::host
