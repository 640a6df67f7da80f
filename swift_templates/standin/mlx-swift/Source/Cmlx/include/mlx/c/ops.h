/* Stands in for mlx-c v0.6.0's ops.h. */
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

int mlx_concatenate_axis(
    mlx_array* res, const mlx_vector_array arrays, int axis, const mlx_stream s);

int mlx_contiguous(
    mlx_array* res, const mlx_array a, bool allow_col_major, const mlx_stream s);

int mlx_expand_dims(mlx_array* res, const mlx_array a, int axis, const mlx_stream s);

int mlx_ones(
    mlx_array* res,
    const int* shape,
    size_t shape_num,
    mlx_dtype dtype,
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

int mlx_squeeze_axis(mlx_array* res, const mlx_array a, int axis, const mlx_stream s);

int mlx_zeros(
    mlx_array* res,
    const int* shape,
    size_t shape_num,
    mlx_dtype dtype,
    const mlx_stream s);

#ifdef __cplusplus
}
#endif

#endif
