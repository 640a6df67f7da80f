#pragma once

#include <string>

#include "mlx/backend/metal/device.h"

namespace h2o::metal {

/// The compiled kernel `name` with these function constants; `specialized` names the
/// combination in MLX's cache of pipelines.
MTL::ComputePipelineState* pipeline(
    mlx::core::metal::Device& device,
    const std::string& name,
    const std::string& specialized,
    const mlx::core::metal::MTLFCList& constants);

} // namespace h2o::metal
