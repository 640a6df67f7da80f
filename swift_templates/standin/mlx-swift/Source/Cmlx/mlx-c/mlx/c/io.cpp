// Stands in for mlx-c v0.6.0's io.cpp and map.cpp.
#include "mlx/c/io.h"

#include "mlx/c/private/mlx.h"
#include "mlx/io.h"

using Iterator = mlx_arrays_by_name_::iterator;
using StringIterator = mlx_strings_by_name_::iterator;

extern "C" mlx_map_string_to_array mlx_map_string_to_array_new(void) {
  return mlx_map_string_to_array{new mlx_arrays_by_name_};
}

extern "C" int mlx_map_string_to_array_free(mlx_map_string_to_array map) {
  delete &mlx_map_string_to_array_get_(map);
  return 0;
}

extern "C" int mlx_map_string_to_array_insert(
    mlx_map_string_to_array map, const char* key, const mlx_array value) {
  return mlx_status_([&] {
    mlx_map_string_to_array_get_(map).insert_or_assign(key, mlx_array_get_(value));
  });
}

extern "C" mlx_map_string_to_array_iterator mlx_map_string_to_array_iterator_new(
    mlx_map_string_to_array map) {
  auto begin = mlx_map_string_to_array_get_(map).begin();
  return mlx_map_string_to_array_iterator{new Iterator(begin), map.ctx};
}

extern "C" int mlx_map_string_to_array_iterator_free(mlx_map_string_to_array_iterator it) {
  delete static_cast<Iterator*>(it.ctx);
  return 0;
}

extern "C" int mlx_map_string_to_array_iterator_next(
    const char** key, mlx_array* value, mlx_map_string_to_array_iterator it) {
  auto& next = *static_cast<Iterator*>(it.ctx);
  if (next == static_cast<mlx_arrays_by_name_*>(it.map_ctx)->end()) {
    return 2;
  }
  *key = next->first.c_str();
  mlx_array_set_(*value, next->second);
  ++next;
  return 0;
}

extern "C" mlx_map_string_to_string mlx_map_string_to_string_new(void) {
  return mlx_map_string_to_string{new mlx_strings_by_name_};
}

extern "C" int mlx_map_string_to_string_free(mlx_map_string_to_string map) {
  delete &mlx_map_string_to_string_get_(map);
  return 0;
}

extern "C" int mlx_map_string_to_string_insert(
    mlx_map_string_to_string map, const char* key, const char* value) {
  return mlx_status_(
      [&] { mlx_map_string_to_string_get_(map).insert_or_assign(key, value); });
}

extern "C" mlx_map_string_to_string_iterator mlx_map_string_to_string_iterator_new(
    mlx_map_string_to_string map) {
  auto begin = mlx_map_string_to_string_get_(map).begin();
  return mlx_map_string_to_string_iterator{new StringIterator(begin), map.ctx};
}

extern "C" int mlx_map_string_to_string_iterator_free(
    mlx_map_string_to_string_iterator it) {
  delete static_cast<StringIterator*>(it.ctx);
  return 0;
}

extern "C" int mlx_map_string_to_string_iterator_next(
    const char** key, const char** value, mlx_map_string_to_string_iterator it) {
  auto& next = *static_cast<StringIterator*>(it.ctx);
  if (next == static_cast<mlx_strings_by_name_*>(it.map_ctx)->end()) {
    return 2;
  }
  *key = next->first.c_str();
  *value = next->second.c_str();
  ++next;
  return 0;
}

extern "C" int mlx_load_safetensors(
    mlx_map_string_to_array* res_0,
    mlx_map_string_to_string* res_1,
    const char* file,
    const mlx_stream s) {
  return mlx_status_([&] {
    auto [arrays, metadata] = mlx::core::load_safetensors(file, mlx_stream_get_(s));
    mlx_map_string_to_array_get_(*res_0) = std::move(arrays);
    mlx_map_string_to_string_get_(*res_1) = std::move(metadata);
  });
}

extern "C" int mlx_save_safetensors(
    const char* file,
    const mlx_map_string_to_array param,
    const mlx_map_string_to_string metadata) {
  return mlx_status_([&] {
    mlx::core::save_safetensors(
        std::string(file), mlx_map_string_to_array_get_(param),
        mlx_map_string_to_string_get_(metadata));
  });
}
