// Stands in for mlx-c v0.6.0's stream.cpp.
#include "mlx/c/stream.h"

#include "mlx/c/private/mlx.h"
#include "mlx/transforms.h"

// From 0.32 on, MLX's default stream is its thread's; Swift's tasks change threads.
extern "C" mlx_stream mlx_default_cpu_stream_new(void) {
  auto stream = mlx::core::new_thread_unsafe_stream(mlx::core::Device::cpu);
  return mlx_stream{new mlx::core::Stream(stream)};
}

extern "C" int mlx_stream_free(mlx_stream stream) {
  delete static_cast<mlx::core::Stream*>(stream.ctx);
  return 0;
}

extern "C" int mlx_synchronize(mlx_stream stream) {
  return mlx_status_([&] { mlx::core::synchronize(mlx_stream_get_(stream)); });
}
