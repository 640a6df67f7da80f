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
  mlx_dtype dtype; /* of keys and values; read only where they are quantized */
} mlx_h2o_config;

/* What is known about each row of a cache. */
typedef struct mlx_h2o_ledger_ {
  mlx_array scores;    /* float32 [B, Hkv, C], -1 where not yet observed */
  mlx_array positions; /* int32 [B, Hkv, C], -1 where the row is empty */
  mlx_array novelty;   /* float32 [B, Hkv, C] */
  mlx_array key_sum;   /* float32 [B, Hkv, Dk], sum of all unit keys so far */
  mlx_array victim;    /* int32 [B, Hkv], row that the next token takes */
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

/* The ledger of an empty cache. Free it with mlx_h2o_ledger_free. */
int mlx_h2o_ledger_init(
    mlx_h2o_ledger* res,
    int batch,
    int kv_heads,
    int key_dim,
    const mlx_h2o_config config,
    const mlx_stream s);

int mlx_h2o_ledger_free(mlx_h2o_ledger ledger);

/* Puts new tokens into the rows: one token after the last row, or over
 * `victim` when `length` is C; several tokens after the last row. Grows the
 * buffer in steps of 256 rows.
 * rows [B, Hkv, capacity, Dk + Dv], or null for an empty cache; keys and
 * values [B, Hkv, L, D]. Writes into the buffer of `rows` unless `copy`: the
 * caller must then hold no other array that shares it. */
int mlx_h2o_cache_write(
    mlx_array* res,
    const mlx_array rows /* may be null */,
    const mlx_array keys,
    const mlx_array values,
    const mlx_array victim,
    int length,
    const mlx_h2o_config config,
    bool copy,
    const mlx_stream s);

/* Attention of the L newest tokens over the rows in use, and what follows from
 * it: scores, positions, novelty, the next victim and, for several tokens that
 * overflow C, eviction.
 * offset and length: tokens seen and rows in use before these `tokens` were
 * written. queries [B, Hq, tokens, Dk] may be null when the attention was
 * computed elsewhere: then *out is left alone and no row is observed. *rows_out
 * is `rows` itself unless a chunk was evicted from. */
int mlx_h2o_cache_attend(
    mlx_array* out,
    mlx_array* rows_out,
    mlx_h2o_ledger* ledger_out,
    const mlx_array queries /* may be null */,
    const mlx_array rows,
    const mlx_h2o_ledger ledger,
    int tokens,
    int offset,
    int length,
    float scale,
    const char* mask_mode,
    const mlx_array mask_arr /* may be null */,
    const mlx_array sinks /* may be null */,
    const mlx_h2o_config config,
    const mlx_stream s);

/* The ledger after the newest tokens were dropped again: rows from `length` on
 * become empty and key_sum is that of the rows that stay. Only for a cache that
 * has not evicted. */
int mlx_h2o_ledger_trim(
    mlx_h2o_ledger* res,
    const mlx_array rows,
    const mlx_h2o_ledger ledger,
    int length,
    const mlx_h2o_config config,
    const mlx_stream s);

/* The keys [B, Hkv, length, Dk] and values [B, Hkv, length, Dv] of the first `length`
 * rows, for attention that is computed elsewhere: views of dense rows, quantized ones
 * widened to the configuration's dtype. */
int mlx_h2o_cache_fetch(
    mlx_array* keys,
    mlx_array* values,
    const mlx_array rows,
    int length,
    int key_dim,
    const mlx_h2o_config config,
    const mlx_stream s);

/* A cache of two precisions: the newest `recent_budget` tokens in a ring, the others in
 * a pool. `group_size` and `dtype` are the configuration's, its bits are not asked. */
typedef struct mlx_h2o_mixed_ {
  int heavy_bits;  /* of the pool: 4, 8 or 16 */
  int recent_bits; /* of the ring: 4, 8 or 16 */
} mlx_h2o_mixed;

/* mlx_h2o_cache_write for a pool and a ring, both null for an empty cache. `offset` is
 * the tokens seen before. */
int mlx_h2o_mixed_cache_write(
    mlx_array* pool_out,
    mlx_array* ring_out,
    const mlx_array pool /* may be null */,
    const mlx_array ring /* may be null */,
    const mlx_array keys,
    const mlx_array values,
    const mlx_array victim,
    int offset,
    const mlx_h2o_config config,
    const mlx_h2o_mixed mixed,
    bool copy,
    const mlx_stream s);

/* mlx_h2o_cache_attend for a pool and a ring. The ledger's rows are the pool's
 * max_size - recent_budget, then the ring's slots. */
int mlx_h2o_mixed_cache_attend(
    mlx_array* out,
    mlx_array* pool_out,
    mlx_array* ring_out,
    mlx_h2o_ledger* ledger_out,
    const mlx_array queries /* may be null */,
    const mlx_array pool,
    const mlx_array ring,
    const mlx_h2o_ledger ledger,
    int tokens,
    int offset,
    int value_dim,
    float scale,
    const char* mask_mode,
    const mlx_array mask_arr /* may be null */,
    const mlx_array sinks /* may be null */,
    const mlx_h2o_config config,
    const mlx_h2o_mixed mixed,
    const mlx_stream s);

/* mlx_h2o_cache_fetch for the first `pooled` rows of the pool and, after them, the first
 * `ringed` rows of the ring. Always in the configuration's dtype. */
int mlx_h2o_mixed_cache_fetch(
    mlx_array* keys,
    mlx_array* values,
    const mlx_array pool,
    const mlx_array ring,
    int pooled,
    int ringed,
    int key_dim,
    const mlx_h2o_config config,
    const mlx_h2o_mixed mixed,
    const mlx_stream s);

#ifdef __cplusplus
}
#endif

#endif
