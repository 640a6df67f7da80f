// Stands in for mlx-c v0.6.0's array.cpp.
#include "mlx/c/array.h"

#include <cstring>

#include "mlx/allocator.h"
#include "mlx/c/private/dtype.h"
#include "mlx/c/private/mlx.h"

namespace mx = mlx::core;

extern "C" mlx_array mlx_array_new(void) {
  return mlx_array{nullptr};
}

extern "C" mlx_array mlx_array_new_data(
    const void* data, const int* shape, int dim, mlx_dtype dtype) {
  return mlx_guarded_(
      [&] {
        auto type = mlx_dtype_to_cpp(dtype);
        size_t bytes = type.size();
        for (int i = 0; i < dim; ++i) {
          bytes *= shape[i];
        }
        mx::array made(mx::allocator::malloc(bytes), mx::Shape(shape, shape + dim), type);
        std::memcpy(made.data<char>(), data, bytes);
        mlx_array result{nullptr};
        return mlx_array_set_(result, made);
      },
      mlx_array{nullptr});
}

extern "C" int mlx_array_set(mlx_array* arr, const mlx_array src) {
  return mlx_status_([&] { mlx_array_set_(*arr, mlx_array_get_(src)); });
}

extern "C" int mlx_array_free(mlx_array arr) {
  mlx_array_free_(arr);
  return 0;
}

extern "C" size_t mlx_array_size(const mlx_array arr) {
  return mlx_guarded_([&] { return mlx_array_get_(arr).size(); }, size_t(0));
}

extern "C" size_t mlx_array_nbytes(const mlx_array arr) {
  return mlx_guarded_([&] { return mlx_array_get_(arr).nbytes(); }, size_t(0));
}

extern "C" size_t mlx_array_ndim(const mlx_array arr) {
  return mlx_guarded_([&] { return mlx_array_get_(arr).ndim(); }, size_t(0));
}

extern "C" const int* mlx_array_shape(const mlx_array arr) {
  const int* none = nullptr;
  return mlx_guarded_(
      [&] { return static_cast<const int*>(mlx_array_get_(arr).shape().data()); }, none);
}

extern "C" int mlx_array_dim(const mlx_array arr, int dim) {
  return mlx_guarded_([&] { return int(mlx_array_get_(arr).shape(dim)); }, 0);
}

extern "C" mlx_dtype mlx_array_dtype(const mlx_array arr) {
  return mlx_guarded_(
      [&] { return mlx_dtype_to_c(mlx_array_get_(arr).dtype()); }, MLX_BOOL);
}

extern "C" int mlx_array_eval(mlx_array arr) {
  return mlx_status_([&] { mlx_array_get_(arr).eval(); });
}

extern "C" const uint8_t* mlx_array_data_uint8(const mlx_array arr) {
  const uint8_t* none = nullptr;
  return mlx_guarded_(
      [&] { return static_cast<const uint8_t*>(mlx_array_get_(arr).data<uint8_t>()); },
      none);
}
