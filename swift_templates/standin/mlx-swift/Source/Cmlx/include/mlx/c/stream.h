/* A stand-in for stream.h of mlx-c v0.6.0, with streams of the CPU only. */
#ifndef MLX_STREAM_H
#define MLX_STREAM_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mlx_stream_ {
  void* ctx;
} mlx_stream;

mlx_stream mlx_default_cpu_stream_new(void);
int mlx_stream_free(mlx_stream stream);

/* Waits until all queued work is evaluated. */
int mlx_synchronize(mlx_stream stream);

#ifdef __cplusplus
}
#endif

#endif
