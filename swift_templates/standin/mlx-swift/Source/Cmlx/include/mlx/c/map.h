/* Stands in for mlx-c v0.6.0's map.h: what safetensors files need. */
#ifndef MLX_MAP_H
#define MLX_MAP_H

#include "mlx/c/array.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mlx_map_string_to_array_ {
  void* ctx;
} mlx_map_string_to_array;

mlx_map_string_to_array mlx_map_string_to_array_new(void);
int mlx_map_string_to_array_free(mlx_map_string_to_array map);
int mlx_map_string_to_array_insert(
    mlx_map_string_to_array map, const char* key, const mlx_array value);

typedef struct mlx_map_string_to_array_iterator_ {
  void* ctx;
  void* map_ctx;
} mlx_map_string_to_array_iterator;

mlx_map_string_to_array_iterator mlx_map_string_to_array_iterator_new(
    mlx_map_string_to_array map);
int mlx_map_string_to_array_iterator_free(mlx_map_string_to_array_iterator it);

/* 0 with the next entry, another value after the last. `key` belongs to the map. */
int mlx_map_string_to_array_iterator_next(
    const char** key, mlx_array* value, mlx_map_string_to_array_iterator it);

typedef struct mlx_map_string_to_string_ {
  void* ctx;
} mlx_map_string_to_string;

mlx_map_string_to_string mlx_map_string_to_string_new(void);
int mlx_map_string_to_string_free(mlx_map_string_to_string map);
int mlx_map_string_to_string_insert(
    mlx_map_string_to_string map, const char* key, const char* value);

typedef struct mlx_map_string_to_string_iterator_ {
  void* ctx;
  void* map_ctx;
} mlx_map_string_to_string_iterator;

mlx_map_string_to_string_iterator mlx_map_string_to_string_iterator_new(
    mlx_map_string_to_string map);
int mlx_map_string_to_string_iterator_free(mlx_map_string_to_string_iterator it);

/* 0 with the next entry, another value after the last. Both belong to the map. */
int mlx_map_string_to_string_iterator_next(
    const char** key, const char** value, mlx_map_string_to_string_iterator it);

#ifdef __cplusplus
}
#endif

#endif
