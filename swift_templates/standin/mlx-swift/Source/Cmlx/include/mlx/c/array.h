/* A stand-in for array.h of mlx-c v0.6.0: the functions that the MLX module of this package
 * calls, with mlx-c's signatures. */
#ifndef MLX_ARRAY_H
#define MLX_ARRAY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A null `ctx` means: no array. */
typedef struct mlx_array_ {
  void* ctx;
} mlx_array;

typedef enum mlx_dtype_ {
  MLX_BOOL,
  MLX_UINT8,
  MLX_UINT16,
  MLX_UINT32,
  MLX_UINT64,
  MLX_INT8,
  MLX_INT16,
  MLX_INT32,
  MLX_INT64,
  MLX_FLOAT16,
  MLX_FLOAT32,
  MLX_FLOAT64,
  MLX_BFLOAT16,
  MLX_COMPLEX64,
} mlx_dtype;

mlx_array mlx_array_new(void);

/* Copies `data`. */
mlx_array mlx_array_new_data(const void* data, const int* shape, int dim, mlx_dtype dtype);

int mlx_array_free(mlx_array arr);

size_t mlx_array_size(const mlx_array arr);
size_t mlx_array_nbytes(const mlx_array arr);
size_t mlx_array_ndim(const mlx_array arr);
const int* mlx_array_shape(const mlx_array arr);
int mlx_array_dim(const mlx_array arr, int dim);
mlx_dtype mlx_array_dtype(const mlx_array arr);

int mlx_array_eval(mlx_array arr);

/* The bytes of an evaluated array. */
const uint8_t* mlx_array_data_uint8(const mlx_array arr);

#ifdef __cplusplus
}
#endif

#endif
