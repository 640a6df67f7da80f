// Stands in for mlx-c v0.6.0's vector.cpp.
#include "mlx/c/vector.h"

#include "mlx/c/private/mlx.h"

namespace mx = mlx::core;

extern "C" mlx_vector_array mlx_vector_array_new(void) {
  return mlx_vector_array{new std::vector<mx::array>()};
}

extern "C" mlx_vector_array mlx_vector_array_new_data(const mlx_array* data, size_t size) {
  return mlx_guarded_(
      [&] {
        std::vector<mx::array> arrays;
        for (size_t i = 0; i < size; ++i) {
          arrays.push_back(mlx_array_get_(data[i]));
        }
        return mlx_vector_array{new std::vector<mx::array>(std::move(arrays))};
      },
      mlx_vector_array{nullptr});
}

extern "C" int mlx_vector_array_set(mlx_vector_array* vec, const mlx_vector_array src) {
  return mlx_status_([&] { mlx_vector_array_set_(*vec, mlx_vector_array_get_(src)); });
}

extern "C" int mlx_vector_array_free(mlx_vector_array vec) {
  delete static_cast<std::vector<mx::array>*>(vec.ctx);
  return 0;
}

extern "C" int mlx_vector_array_append_value(mlx_vector_array vec, const mlx_array val) {
  return mlx_status_([&] { mlx_vector_array_get_(vec).push_back(mlx_array_get_(val)); });
}

extern "C" size_t mlx_vector_array_size(mlx_vector_array vec) {
  return mlx_guarded_([&] { return mlx_vector_array_get_(vec).size(); }, size_t(0));
}

extern "C" int mlx_vector_array_get(
    mlx_array* res, const mlx_vector_array vec, size_t idx) {
  return mlx_status_([&] { mlx_array_set_(*res, mlx_vector_array_get_(vec).at(idx)); });
}
