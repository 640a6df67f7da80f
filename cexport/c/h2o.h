/* C interface of the H2O cache, in the conventions of mlx-c: results first, an
 * int status (0 is success), errors through the mlx error handler, the stream
 * last. Arrays whose `ctx` is null are absent where "may be null" is said.
 *
 * Shapes: B batch, Hq query heads, Hkv KV heads, L new tokens, Dk and Dv the
 * head dims of keys and values, N rows in use, C `max_size`. */
#ifndef MLX_H2O_H
#define MLX_H2O_H

#include <stdbool.h>
#include <stddef.h>

#include "mlx/c/array.h"
#include "mlx/c/h2o_policy.h"
#include "mlx/c/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which rows a cache keeps, and how they are stored; fields that are left out should be
   zero. Checked by every function that takes it. */
typedef struct mlx_h2o_config_ {
  mlx_h2o_policy policy;
  int key_bits;    /* 16: keys as they are; 4 or 8: quantized */
  int value_bits;  /* the same for values; 16 only together with keys */
  int group_size;  /* 32, 64 or 128 elements share a scale and a bias */
  mlx_dtype dtype; /* of keys and values; read only where any are quantized */
  int recent_bits; /* 4, 8 or 16 for the newest `recent_budget` tokens, which a ring then
                      holds; 0: no ring */
  bool rotated;    /* whether rows hold keys and values that were rotated, which loses less
                      where bits are few; what goes in and comes out is not rotated */
} mlx_h2o_config;

/* The rows of a cache; all null while it is empty. Free each with mlx_array_free. */
typedef struct mlx_h2o_rows_ {
  mlx_array pool; /* [B, Hkv, capacity, Dk + Dv], or uint32 words of quantized rows */
  mlx_array ring; /* the same, null without `recent_bits` */
} mlx_h2o_rows;

/* What is known about each row of a cache. */
typedef struct mlx_h2o_ledger_ {
  mlx_array scores;    /* float32 [B, Hkv, C], -1 where not yet observed */
  mlx_array positions; /* int32 [B, Hkv, C], -1 where the row is empty */
  mlx_array novelty;   /* float32 [B, Hkv, C] */
  mlx_array key_sum;   /* float32 [B, Hkv, Dk], sum of all unit keys so far */
  mlx_array victim;    /* int32 [B, Hkv], row that the next token takes */
  mlx_array held;      /* bool [B, Hkv, C], rows that no eviction takes; null in a cache
                          without recall */
} mlx_h2o_ledger;

/* Attention that also returns its logits, `scale * q.k (+ additive mask)`, as
 * float32 [B * Hq * L, N]; a hidden row's logit is -FLT_MAX.
 * queries [B, Hq, L, Dk], keys [B, Hkv, N, Dk], values [B, Hkv, N, Dv];
 * mask_mode "" or "causal"; mask_arr (bool or additive, broadcastable to
 * [B, Hq, L, N]) and sinks ([Hq]) may be null. */
int mlx_fast_scaled_dot_product_attention_with_scores(
    mlx_array* out,
    mlx_array* scores,
    const mlx_array queries,
    const mlx_array keys,
    const mlx_array values,
    float scale,
    const char* mask_mode,
    const mlx_array mask_arr /* may be null */,
    const mlx_array sinks /* may be null */,
    const mlx_stream s);

/* The same over keys and values as mlx_quantize packs them (affine): words uint32
 * [B, Hkv, N, D * bits / 32], scales and biases [B, Hkv, N, D / group_size]. */
int mlx_fast_scaled_dot_product_attention_quantized_with_scores(
    mlx_array* out,
    mlx_array* scores,
    const mlx_array queries,
    const mlx_array key_words,
    const mlx_array key_scales,
    const mlx_array key_biases,
    const mlx_array value_words,
    const mlx_array value_scales,
    const mlx_array value_biases,
    float scale,
    int key_bits,
    int value_bits,
    int group_size,
    const char* mask_mode,
    const mlx_array mask_arr /* may be null */,
    const mlx_array sinks /* may be null */,
    const mlx_stream s);

/* The ledger of an empty cache. Free its arrays with mlx_array_free. */
int mlx_h2o_ledger_init(
    mlx_h2o_ledger* res,
    int batch,
    int kv_heads,
    int key_dim,
    const mlx_h2o_config config,
    const mlx_stream s);

/* New tokens, and where they go. */
typedef struct mlx_h2o_write_arguments_ {
  mlx_h2o_rows rows; /* null for an empty cache */
  mlx_array keys;    /* [B, Hkv, L, Dk] */
  mlx_array values;  /* [B, Hkv, L, Dv] */
  mlx_array victim;  /* the ledger's */
  int offset;        /* tokens seen before */
  bool copy;         /* write into copies of `rows` */
} mlx_h2o_write_arguments;

/* The rows with new tokens put in: one token takes the next free row or, of a full cache,
 * the one of `victim`; several tokens go after the rows in use until their attention. With
 * a ring they go into that, and one token moves the oldest recent one to the pool. Buffers
 * grow in steps of 256 rows. The result shares the buffers of `rows` unless `copy`: the
 * caller must then hold no other array that shares them. */
int mlx_h2o_cache_write(
    mlx_h2o_rows* res,
    const mlx_h2o_write_arguments arguments,
    const mlx_h2o_config config,
    const mlx_stream s);

/* The attention of the newest tokens. */
typedef struct mlx_h2o_attend_arguments_ {
  mlx_array queries; /* [B, Hq, tokens, Dk]; null: the attention was computed elsewhere */
  mlx_h2o_rows rows; /* the result of the write */
  mlx_h2o_ledger ledger; /* from before the write */
  int tokens;            /* how many were written */
  int offset;            /* tokens seen before them */
  float scale;
  const char* mask_mode; /* "" or "causal"; may be null */
  mlx_array mask_arr;    /* broadcastable to [B, Hq, tokens, N]; may be null */
  mlx_array sinks;       /* [Hq]; may be null */
} mlx_h2o_attend_arguments;

/* Attention of the newest tokens over the rows in use, and what follows from it: scores,
 * positions, novelty, the next victim and, for several tokens that overflow C, eviction.
 * Without queries *out is left alone and no row is observed. *rows_out are the given rows
 * unless a chunk was sorted into new ones. */
int mlx_h2o_cache_attend(
    mlx_array* out,
    mlx_h2o_rows* rows_out,
    mlx_h2o_ledger* ledger_out,
    const mlx_h2o_attend_arguments arguments,
    const mlx_h2o_config config,
    const mlx_stream s);

/* The ledger after the newest tokens were dropped again: rows from `length` on
 * become empty and key_sum is that of the rows that stay. Only for a cache
 * without a ring that has not evicted. */
int mlx_h2o_ledger_trim(
    mlx_h2o_ledger* res,
    const mlx_h2o_rows rows,
    const mlx_h2o_ledger ledger,
    int length,
    const mlx_h2o_config config,
    const mlx_stream s);

/* The keys [B, Hkv, N, Dk] and values [B, Hkv, N, Dv] of the rows in use, those of the pool
 * first, for attention that is computed elsewhere: views of dense rows, quantized ones
 * widened to the configuration's dtype. `tokens` were just written and their attention is
 * outstanding; `offset` were seen before them. */
int mlx_h2o_cache_fetch(
    mlx_array* keys,
    mlx_array* values,
    const mlx_h2o_rows rows,
    int key_dim,
    int offset,
    int tokens,
    const mlx_h2o_config config,
    const mlx_stream s);

#ifdef __cplusplus
}
#endif

#endif
