// Stands in for mlx-c v0.6.0's memory.cpp.
#include "mlx/c/memory.h"

#include "mlx/c/private/mlx.h"
#include "mlx/memory.h"

extern "C" int mlx_get_active_memory(size_t* res) {
  return mlx_status_([&] { *res = mlx::core::get_active_memory(); });
}

extern "C" int mlx_get_memory_limit(size_t* res) {
  return mlx_status_([&] { *res = mlx::core::get_memory_limit(); });
}

extern "C" int mlx_get_peak_memory(size_t* res) {
  return mlx_status_([&] { *res = mlx::core::get_peak_memory(); });
}

extern "C" int mlx_reset_peak_memory(void) {
  return mlx_status_([&] { mlx::core::reset_peak_memory(); });
}

extern "C" int mlx_set_cache_limit(size_t* res, size_t limit) {
  return mlx_status_([&] { *res = mlx::core::set_cache_limit(limit); });
}

extern "C" int mlx_set_memory_limit(size_t* res, size_t limit) {
  return mlx_status_([&] { *res = mlx::core::set_memory_limit(limit); });
}
