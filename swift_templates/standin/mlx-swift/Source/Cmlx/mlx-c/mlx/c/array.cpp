// A stand-in for array.cpp, vector.cpp, stream.cpp and error.cpp of mlx-c v0.6.0.
#include "mlx/c/array.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "mlx/allocator.h"
#include "mlx/c/error.h"
#include "mlx/c/private/mlx.h"
#include "mlx/c/stream.h"
#include "mlx/c/vector.h"
#include "mlx/transforms.h"

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

extern "C" int mlx_array_free(mlx_array arr) {
  delete static_cast<mx::array*>(arr.ctx);
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

extern "C" int mlx_vector_array_free(mlx_vector_array vec) {
  delete static_cast<std::vector<mx::array>*>(vec.ctx);
  return 0;
}

extern "C" size_t mlx_vector_array_size(mlx_vector_array vec) {
  return mlx_guarded_([&] { return mlx_vector_array_get_(vec).size(); }, size_t(0));
}

extern "C" int mlx_vector_array_get(
    mlx_array* res, const mlx_vector_array vec, size_t idx) {
  return mlx_status_([&] { mlx_array_set_(*res, mlx_vector_array_get_(vec).at(idx)); });
}

// Creates a stream that all threads may use, because Swift's tasks change threads, and from 0.32 on MLX has
// one default stream per thread.
extern "C" mlx_stream mlx_default_cpu_stream_new(void) {
  auto stream = mx::new_thread_unsafe_stream(mx::Device::cpu);
  return mlx_stream{new mx::Stream(stream)};
}

extern "C" int mlx_stream_free(mlx_stream stream) {
  delete static_cast<mx::Stream*>(stream.ctx);
  return 0;
}

extern "C" int mlx_synchronize(mlx_stream stream) {
  return mlx_status_([&] { mx::synchronize(mlx_stream_get_(stream)); });
}

namespace {

void print_and_exit(const char* msg, void*) {
  std::fprintf(stderr, "MLX error: %s\n", msg);
  std::exit(EXIT_FAILURE);
}

mlx_error_handler_func handler_ = print_and_exit;
std::shared_ptr<void> data_;

} // namespace

extern "C" void mlx_set_error_handler(
    mlx_error_handler_func handler, void* data, void (*dtor)(void*)) {
  handler_ = handler ? handler : print_and_exit;
  data_ = dtor ? std::shared_ptr<void>(data, dtor) : nullptr;
}

extern "C" void _mlx_error(const char* file, const int line, const char* fmt, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, fmt);
  std::vsnprintf(text, sizeof(text), fmt, arguments);
  va_end(arguments);
  auto message = std::string(text) + " at " + file + ":" + std::to_string(line);
  handler_(message.c_str(), data_.get());
}
