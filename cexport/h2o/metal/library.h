#pragma once

#include <string>
#include <vector>

#include "mlx/backend/metal/device.h"

namespace h2o::metal {

/// The instance of a kernel's template for some types and sizes.
struct KernelInstance {
  std::string kernel;
  std::vector<std::string> arguments;

  std::string name() const;
};

/// The source that defines a kernel's template and what it needs.
std::string kernel_text(const std::string& kernel);

/// The library with one instance, compiled when it is first asked for and kept by MLX until
/// the process ends.
MTL::Library* library(mlx::core::metal::Device& device, const KernelInstance& instance);

} // namespace h2o::metal
