/* A stand-in for ops.h, fast.h, io.h and memory.h of mlx-c v0.6.0: the functions that the MLX module
 * of this package calls. They have mlx-c's signatures, except for those of safetensors files, which
 * use callbacks instead of maps. */
#ifndef MLX_OPS_H
#define MLX_OPS_H

#include <stdbool.h>

#include "mlx/c/array.h"
#include "mlx/c/stream.h"
#include "mlx/c/vector.h"

#ifdef __cplusplus
extern "C" {
#endif

int mlx_add(mlx_array* res, const mlx_array a, const mlx_array b, const mlx_stream s);

int mlx_astype(mlx_array* res, const mlx_array a, mlx_dtype dtype, const mlx_stream s);

int mlx_contiguous(
    mlx_array* res, const mlx_array a, bool allow_col_major, const mlx_stream s);

int mlx_reshape(
    mlx_array* res,
    const mlx_array a,
    const int* shape,
    size_t shape_num,
    const mlx_stream s);

int mlx_slice(
    mlx_array* res,
    const mlx_array a,
    const int* start,
    size_t start_num,
    const int* stop,
    size_t stop_num,
    const int* strides,
    size_t strides_num,
    const mlx_stream s);

int mlx_fast_scaled_dot_product_attention(
    mlx_array* res,
    const mlx_array queries,
    const mlx_array keys,
    const mlx_array values,
    float scale,
    const char* mask_mode,
    const mlx_array mask_arr /* may be null */,
    const mlx_array sinks /* may be null */,
    const mlx_stream s);

/* Reads a safetensors file, and passes each array and each text of the metadata to its callback
 * together with `data`. A callback owns its array. Names and texts are valid until it returns. */
int mlx_load_safetensors(
    const char* file,
    const mlx_stream s,
    void* data,
    void (*add_array)(void* data, const char* name, mlx_array value),
    void (*add_text)(void* data, const char* name, const char* value));

/* `names` are the names of `arrays`; `texts` has `text_num` pairs of a name and a value. */
int mlx_save_safetensors(
    const char* file,
    const char* const* names,
    const mlx_vector_array arrays,
    const char* const* texts,
    size_t text_num);

int mlx_clear_cache(void);
int mlx_get_active_memory(size_t* res);
int mlx_get_memory_limit(size_t* res);
int mlx_get_peak_memory(size_t* res);
int mlx_reset_peak_memory(void);

/* `res` receives the previous limit. */
int mlx_set_cache_limit(size_t* res, size_t limit);
int mlx_set_memory_limit(size_t* res, size_t limit);

#ifdef __cplusplus
}
#endif

#endif
