/* Stands in for mlx-c v0.6.0's io.h. */
#ifndef MLX_IO_H
#define MLX_IO_H

#include "mlx/c/map.h"
#include "mlx/c/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The arrays and the metadata of a safetensors file. */
int mlx_load_safetensors(
    mlx_map_string_to_array* res_0,
    mlx_map_string_to_string* res_1,
    const char* file,
    const mlx_stream s);

int mlx_save_safetensors(
    const char* file,
    const mlx_map_string_to_array param,
    const mlx_map_string_to_string metadata);

#ifdef __cplusplus
}
#endif

#endif
