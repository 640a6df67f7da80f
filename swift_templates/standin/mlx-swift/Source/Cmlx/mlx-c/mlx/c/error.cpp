// Stands in for mlx-c v0.6.0's error.cpp.
#include "mlx/c/error.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

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
