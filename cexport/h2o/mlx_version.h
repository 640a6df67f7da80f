/// What differs between the versions of MLX that the core compiles against: 0.31.1, which
/// mlx-swift 0.31.6 contains, and 0.32.4, which Python uses.
#pragma once

#include <optional>
#include <string>

#include "mlx/fast.h"
#include "mlx/version.h"

namespace h2o {

namespace mx = mlx::core;

/// MLX's own attention. 0.32 has one more argument before the stream.
inline mx::array mlx_attention(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    float scale,
    const std::string& mask_mode,
    const std::optional<mx::array>& mask,
    const std::optional<mx::array>& sinks,
    mx::StreamOrDevice s) {
#if MLX_VERSION_NUMERIC >= 32000
  return mx::fast::scaled_dot_product_attention(
      queries, keys, values, scale, mask_mode, mask, sinks, /* force_fused= */ false, s);
#else
  return mx::fast::scaled_dot_product_attention(
      queries, keys, values, scale, mask_mode, mask, sinks, s);
#endif
}

} // namespace h2o
