/// The differences between the versions of MLX that the core compiles with: 0.31.1, which
/// mlx-swift 0.31.6 contains, and 0.32.4, which Python uses.
#pragma once

#include <optional>
#include <string>

#include "metal/build.h"
#include "mlx/allocator.h"
#include "mlx/fast.h"
#include "mlx/version.h"
#if H2O_METAL
#include "mlx/backend/metal/device.h"
#endif

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

/// Memory from MLX's allocator. From 0.32 on, a buffer owns its memory.
#if MLX_VERSION_NUMERIC >= 32000
using Memory = mx::allocator::Data;
inline bool has_memory(const Memory& memory) {
  return memory.buffer().ptr() != nullptr;
}
#else
using Memory = mx::allocator::Buffer;
inline bool has_memory(const Memory& memory) {
  return memory.ptr() != nullptr;
}
#endif

#if H2O_METAL
namespace metal {

/// The encoder of a stream. In 0.31 the device owns it; from 0.32 on, the thread owns it.
inline mx::metal::CommandEncoder& encoder_of(mx::Stream stream) {
#if MLX_VERSION_NUMERIC >= 32000
  return mx::metal::get_command_encoder(stream);
#else
  return mx::metal::device(stream.device).get_command_encoder(stream.index);
#endif
}

/// Keeps an array until the stream is done with it.
inline void keep_until_done(mx::Stream stream, const mx::array& a) {
#if MLX_VERSION_NUMERIC >= 32000
  encoder_of(stream).add_temporary(a);
#else
  mx::metal::device(stream.device).add_temporary(a, stream.index);
#endif
}

} // namespace metal
#endif

} // namespace h2o
