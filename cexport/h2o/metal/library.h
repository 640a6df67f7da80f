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

/// The source of a kernel's template and of all that it includes.
std::string kernel_text(const std::string& kernel);

/// The library with one instance. It is compiled at the first request, and MLX keeps it
/// until the process ends.
MTL::Library* library(mlx::core::metal::Device& device, const KernelInstance& instance);

} // namespace h2o::metal
