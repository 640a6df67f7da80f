/* C interface of the H2O cache, in the conventions of mlx-c. Results are the first
 * parameters, and the stream is the last one. A function returns 0 if it succeeds. If it
 * fails, it calls the mlx error handler, returns 1 and does not change its results. For a
 * parameter marked "may be null", an array whose `ctx` is null means: no array.
 *
 * Shapes: B batch, Hq query heads, Hkv KV heads, L new tokens, Dk and Dv the
 * head dims of keys and values, N rows in use, C `max_size`. */
#ifndef MLX_H2O_H
#define MLX_H2O_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mlx/c/array.h"
#include "mlx/c/stream.h"
#include "mlx/c/vector.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The settings that decide which rows a cache keeps and what recall reads. They have the names
 * in interface/policy.toml. Names of recall's settings begin with "recall."; setting any of them
 * turns recall on. */
typedef struct mlx_h2o_policy_ {
  void* ctx;
} mlx_h2o_policy;

/* Creates a policy without settings. Functions that take a policy fail if its `ctx` is null. */
int mlx_h2o_policy_new(mlx_h2o_policy* res);
int mlx_h2o_policy_free(mlx_h2o_policy policy);

/* Set one setting. mlx_h2o_policy_complete checks the name and the value. */
int mlx_h2o_policy_set_integer(mlx_h2o_policy policy, const char* name, int64_t value);
int mlx_h2o_policy_set_text(mlx_h2o_policy policy, const char* name, const char* value);
/* Sets a list of layers, or ranges as begin, end, begin, end, ... */
int mlx_h2o_policy_set_integers(
    mlx_h2o_policy policy, const char* name, const int64_t* values, size_t count);

/* Checks all settings, and fills in missing ones. If only settings of recall are set, checks and
 * completes only those. Fails if the settings cannot be used: a cache cannot be created from this
 * policy. */
int mlx_h2o_policy_complete(mlx_h2o_policy policy);

/* Return a setting of a complete policy; 0 or "" if there is no such setting, and after an
 * error. */
int64_t mlx_h2o_policy_integer(mlx_h2o_policy policy, const char* name);
const char* mlx_h2o_policy_text(mlx_h2o_policy policy, const char* name);

/* Writes at most `most` integers of a list to `res`, and returns how many the list has. */
size_t mlx_h2o_policy_integers(
    int64_t* res, size_t most, mlx_h2o_policy policy, const char* name);

/* Gives the code and the values of a warning about a complete policy to mlx_h2o_error_code and
 * the functions after it. Returns false if there is no such warning, and after an error. */
bool mlx_h2o_policy_warning(mlx_h2o_policy policy, size_t index);

/* The configuration of a cache. Set unused fields to zero. */
typedef struct mlx_h2o_config_ {
  mlx_h2o_policy policy; /* complete; may be freed after the call */
  int key_bits;          /* 16: not quantized; 4 or 8: quantized */
  int value_bits;        /* the same for values; 16 only if `key_bits` is 16 */
  int group_size;        /* 32, 64 or 128 elements share a scale and a bias */
  int recent_bits; /* 4, 8 or 16: a ring stores the newest `recent_budget` tokens with this
                      many bits; 0: no ring */
  bool rotated;    /* whether the cache rotates keys and values before it stores them, which
                      reduces the error of 4 bits; arguments and results are not rotated */
} mlx_h2o_config;

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

/* The same attention over keys and values that mlx_quantize packed in its affine mode: words
 * uint32 [B, Hkv, N, D * bits / 32], scales and biases [B, Hkv, N, D / group_size]. */
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

/* The error of the last call on this thread: its code in interface/errors.toml, and named values
 * for its message. The code is "" if the call succeeded or its error has no code. It is a code
 * of h2o::CacheError, h2o::ArchiveError or h2o::PolicyError; an ArchiveError has the values
 * `path` and `error` (errno or 0). The texts are valid until the next call on this thread. */
const char* mlx_h2o_error_code(void);
size_t mlx_h2o_error_values(void);             /* number of values */
const char* mlx_h2o_error_name(size_t index);  /* null beyond the last value */
const char* mlx_h2o_error_value(size_t index); /* null beyond the last value */

/* Receives a notice when a cache continues without scores or without recall. `code` says why.
 * For an archive in files, `path` and `error` (errno) are set; otherwise they are "" and 0.
 * Every function that takes a cache may call it, on the caller's thread. */
typedef void (*mlx_h2o_notice_handler)(
    const char* code, const char* path, int error, void* data);

/* Sets the handler; at first there is none, and null removes it. `dtor` (may be null) frees
 * `data` when another handler is set. */
void mlx_h2o_set_notice_handler(
    mlx_h2o_notice_handler handler, void* data, void (*dtor)(void*));

/* The cache of one layer. Only one thread may use it at a time. Functions that take a cache
 * fail if its `ctx` is null. */
typedef struct mlx_h2o_layer_cache_ {
  void* ctx;
} mlx_h2o_layer_cache;

/* Creates an empty cache. If the first write cannot create the archive, the cache continues
 * without recall, and the handler receives a notice with the error's code. */
int mlx_h2o_layer_cache_new(mlx_h2o_layer_cache* res, const mlx_h2o_config config);

int mlx_h2o_layer_cache_free(mlx_h2o_layer_cache cache);

/* Creates an independent cache in the same state. Each of the two caches copies the rows at its
 * next write. Both share the segments of an archive. */
int mlx_h2o_layer_cache_copy(mlx_h2o_layer_cache* res, const mlx_h2o_layer_cache cache);

/* Writes new tokens: keys [B, Hkv, L, Dk] after RoPE, and values [B, Hkv, L, Dv]. Returns the
 * keys and values of all rows in use, [B, Hkv, N, D], including the new tokens, for attention
 * that the caller computes. The next write does not change these arrays. */
int mlx_h2o_layer_cache_write(
    mlx_array* keys,
    mlx_array* values,
    const mlx_h2o_layer_cache cache,
    const mlx_array new_keys,
    const mlx_array new_values,
    const mlx_stream s);

/* Computes the attention [B, Hq, L, Dv] of new tokens over the rows in use, and chooses the next
 * row to evict. First writes `keys` and `values`; if they are null, the new tokens are the
 * tokens of the last write. queries [B, Hq, L, Dk]; mask_mode "" or "causal"; mask_arr
 * broadcastable to [B, Hq, L, N]; sinks [Hq]. */
int mlx_h2o_layer_cache_attend(
    mlx_array* out,
    const mlx_h2o_layer_cache cache,
    const mlx_array queries,
    const mlx_array keys /* may be null */,
    const mlx_array values /* may be null */,
    float scale,
    const char* mask_mode,
    const mlx_array mask_arr /* may be null */,
    const mlx_array sinks /* may be null */,
    const mlx_stream s);

/* Adds the written tokens to the ledger without scores, and evicts down to C rows. */
int mlx_h2o_layer_cache_settle(const mlx_h2o_layer_cache cache, const mlx_stream s);

/* Removes the newest `n` tokens; *res is the number of removed tokens, 0 after an eviction. */
int mlx_h2o_layer_cache_trim(
    int* res, const mlx_h2o_layer_cache cache, int n, const mlx_stream s);

/* Makes the next write copy the rows, because other code still reads them. */
int mlx_h2o_layer_cache_share(const mlx_h2o_layer_cache cache);

/* Moves the archive to files in a new folder. Does nothing if there is no archive. */
int mlx_h2o_layer_cache_move_archive(
    const mlx_h2o_layer_cache cache, const char* folder, const mlx_stream s);

/* Return the number of tokens seen so far, the rows in use, the number of written tokens
 * without attention, and whether the newest tokens can be removed. If the cache's `ctx` is
 * null, they call the error handler and return 0. */
int mlx_h2o_layer_cache_offset(const mlx_h2o_layer_cache cache);
int mlx_h2o_layer_cache_length(const mlx_h2o_layer_cache cache);
int mlx_h2o_layer_cache_unattended(const mlx_h2o_layer_cache cache);
bool mlx_h2o_layer_cache_is_trimmable(const mlx_h2o_layer_cache cache);

typedef struct mlx_h2o_layer_numbers_ {
  size_t row_bytes;      /* bytes of the buffers, including unused rows */
  size_t ledger_bytes;   /* bytes of the arrays of mlx_h2o_layer_cache_ledger */
  bool recalls;          /* whether there is an archive */
  bool in_files;         /* whether the archive is in files */
  size_t archive_bytes;  /* bytes of the archive, in memory and in files */
  size_t sketch_bytes;   /* bytes of the sketch of the archived keys, in memory */
  int64_t archive_reads; /* archived rows that were read, all heads together */
} mlx_h2o_layer_numbers;

int mlx_h2o_layer_cache_numbers(
    mlx_h2o_layer_numbers* res, const mlx_h2o_layer_cache cache);

/* Returns the ledger, which has data about each row; no arrays while the cache is empty. The
 * arrays are: scores float32 [B, Hkv, C], -1 for a row that no query has seen yet; positions
 * int32 [B, Hkv, C], -1 for an empty row; the row that the next token overwrites, int32
 * [B, Hkv]. */
int mlx_h2o_layer_cache_ledger(mlx_vector_array* res, const mlx_h2o_layer_cache cache);

/* Returns the buffers of the rows: the pool, then the ring if there is one, each [B, Hkv,
 * capacity, Dk + Dv], or uint32 words if its rows are quantized. The next write changes them
 * unless mlx_h2o_layer_cache_share was called. */
int mlx_h2o_layer_cache_rows(mlx_vector_array* res, const mlx_h2o_layer_cache cache);

/* Returns the arrays to save: keys and values of the rows in use of each buffer (one row of zeros
 * if it has none), then the ledger's arrays if the cache evicts, then the archive's arrays.
 * Returns no arrays while the cache is empty. */
int mlx_h2o_layer_cache_arrays(
    mlx_vector_array* res, const mlx_h2o_layer_cache cache, const mlx_stream s);

/* Returns the text to save with the arrays; null after an error. The text
 * is valid until the next call for this cache. */
const char* mlx_h2o_layer_cache_header(const mlx_h2o_layer_cache cache);

/* Restores a saved cache. Trusts nothing: checks the header and all arrays before it uses them.
 * `folder` is the folder of the conversation's archive, if it is in files; the header names
 * none. */
int mlx_h2o_layer_cache_restore(
    mlx_h2o_layer_cache* res,
    const char* header,
    const mlx_vector_array arrays,
    const char* folder /* may be null */,
    const mlx_stream s);

/* Returns the configuration of a cache. The caller frees its policy, which is complete. */
int mlx_h2o_layer_cache_config(mlx_h2o_config* res, const mlx_h2o_layer_cache cache);

#ifdef __cplusplus
}
#endif

#endif
