// A stand-in for ops.cpp, fast.cpp, io.cpp and memory.cpp of mlx-c v0.6.0.
#include "mlx/c/ops.h"

#include <string>
#include <unordered_map>

#include "mlx/c/private/mlx.h"
#include "mlx/fast.h"
#include "mlx/io.h"
#include "mlx/memory.h"
#include "mlx/ops.h"

namespace mx = mlx::core;

namespace {

std::optional<mx::array> array_or_none(mlx_array a) {
  return a.ctx ? std::make_optional(mlx_array_get_(a)) : std::nullopt;
}

} // namespace

extern "C" int mlx_add(
    mlx_array* res, const mlx_array a, const mlx_array b, const mlx_stream s) {
  return mlx_status_([&] {
    mlx_array_set_(*res, mx::add(mlx_array_get_(a), mlx_array_get_(b), mlx_stream_get_(s)));
  });
}

extern "C" int mlx_astype(
    mlx_array* res, const mlx_array a, mlx_dtype dtype, const mlx_stream s) {
  return mlx_status_([&] {
    mlx_array_set_(
        *res, mx::astype(mlx_array_get_(a), mlx_dtype_to_cpp(dtype), mlx_stream_get_(s)));
  });
}

extern "C" int mlx_contiguous(
    mlx_array* res, const mlx_array a, bool allow_col_major, const mlx_stream s) {
  return mlx_status_([&] {
    mlx_array_set_(
        *res, mx::contiguous(mlx_array_get_(a), allow_col_major, mlx_stream_get_(s)));
  });
}

extern "C" int mlx_reshape(
    mlx_array* res,
    const mlx_array a,
    const int* shape,
    size_t shape_num,
    const mlx_stream s) {
  return mlx_status_([&] {
    mlx_array_set_(
        *res,
        mx::reshape(
            mlx_array_get_(a), mx::Shape(shape, shape + shape_num), mlx_stream_get_(s)));
  });
}

extern "C" int mlx_slice(
    mlx_array* res,
    const mlx_array a,
    const int* start,
    size_t start_num,
    const int* stop,
    size_t stop_num,
    const int* strides,
    size_t strides_num,
    const mlx_stream s) {
  return mlx_status_([&] {
    mlx_array_set_(
        *res, mx::slice(
                  mlx_array_get_(a), mx::Shape(start, start + start_num),
                  mx::Shape(stop, stop + stop_num),
                  mx::Shape(strides, strides + strides_num), mlx_stream_get_(s)));
  });
}

extern "C" int mlx_fast_scaled_dot_product_attention(
    mlx_array* res,
    const mlx_array queries,
    const mlx_array keys,
    const mlx_array values,
    float scale,
    const char* mask_mode,
    const mlx_array mask_arr /* may be null */,
    const mlx_array sinks /* may be null */,
    const mlx_stream s) {
  return mlx_status_([&] {
    mlx_array_set_(
        *res, mx::fast::scaled_dot_product_attention(
                  mlx_array_get_(queries), mlx_array_get_(keys), mlx_array_get_(values),
                  scale, mask_mode, array_or_none(mask_arr), array_or_none(sinks),
                  /* force_fused= */ false, mlx_stream_get_(s)));
  });
}

extern "C" int mlx_load_safetensors(
    const char* file,
    const mlx_stream s,
    void* data,
    void (*add_array)(void* data, const char* name, mlx_array value),
    void (*add_text)(void* data, const char* name, const char* value)) {
  return mlx_status_([&] {
    auto [arrays, metadata] = mx::load_safetensors(file, mlx_stream_get_(s));
    for (const auto& [name, value] : arrays) {
      add_array(data, name.c_str(), mlx_array{new mx::array(value)});
    }
    for (const auto& [name, value] : metadata) {
      add_text(data, name.c_str(), value.c_str());
    }
  });
}

extern "C" int mlx_save_safetensors(
    const char* file,
    const char* const* names,
    const mlx_vector_array arrays,
    const char* const* texts,
    size_t text_num) {
  return mlx_status_([&] {
    const auto& values = mlx_vector_array_get_(arrays);
    std::unordered_map<std::string, mx::array> by_name;
    for (size_t i = 0; i < values.size(); ++i) {
      by_name.emplace(names[i], values[i]);
    }
    std::unordered_map<std::string, std::string> metadata;
    for (size_t i = 0; i < text_num; ++i) {
      metadata.emplace(texts[2 * i], texts[2 * i + 1]);
    }
    mx::save_safetensors(std::string(file), by_name, metadata);
  });
}

extern "C" int mlx_get_active_memory(size_t* res) {
  return mlx_status_([&] { *res = mx::get_active_memory(); });
}

extern "C" int mlx_get_memory_limit(size_t* res) {
  return mlx_status_([&] { *res = mx::get_memory_limit(); });
}

extern "C" int mlx_get_peak_memory(size_t* res) {
  return mlx_status_([&] { *res = mx::get_peak_memory(); });
}

extern "C" int mlx_clear_cache(void) {
  return mlx_status_([&] { mx::clear_cache(); });
}

extern "C" int mlx_reset_peak_memory(void) {
  return mlx_status_([&] { mx::reset_peak_memory(); });
}

extern "C" int mlx_set_cache_limit(size_t* res, size_t limit) {
  return mlx_status_([&] { *res = mx::set_cache_limit(limit); });
}

extern "C" int mlx_set_memory_limit(size_t* res, size_t limit) {
  return mlx_status_([&] { *res = mx::set_memory_limit(limit); });
}
