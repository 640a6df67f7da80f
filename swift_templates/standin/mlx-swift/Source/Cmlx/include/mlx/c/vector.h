/* A stand-in for vector.h of mlx-c v0.6.0: lists of arrays. */
#ifndef MLX_VECTOR_H
#define MLX_VECTOR_H

#include "mlx/c/array.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mlx_vector_array_ {
  void* ctx;
} mlx_vector_array;

mlx_vector_array mlx_vector_array_new(void);
mlx_vector_array mlx_vector_array_new_data(const mlx_array* data, size_t size);
int mlx_vector_array_free(mlx_vector_array vec);

size_t mlx_vector_array_size(mlx_vector_array vec);
int mlx_vector_array_get(mlx_array* res, const mlx_vector_array vec, size_t idx);

#ifdef __cplusplus
}
#endif

#endif
