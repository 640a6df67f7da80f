/* C interface of the H2O cache, in the conventions of mlx-c: results first, an
 * int status (0 is success), errors through the mlx error handler, the stream
 * last. Arrays whose `ctx` is null are absent where "may be null" is said. A
 * function that fails leaves its results alone.
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

/* Which rows a cache keeps, and what recall brings back. Settings have the names of
 * interface/policy.toml; those of recall begin with "recall.", and any of them turns it on. */
typedef struct mlx_h2o_policy_ {
  void* ctx;
} mlx_h2o_policy;

/* None of its settings is given. A null `ctx` is no policy, an error where one is needed. */
int mlx_h2o_policy_new(mlx_h2o_policy* res);
int mlx_h2o_policy_free(mlx_h2o_policy policy);

/* Each gives a setting. Whether it exists and allows the value, `complete` says. */
int mlx_h2o_policy_set_integer(mlx_h2o_policy policy, const char* name, int64_t value);
int mlx_h2o_policy_set_number(mlx_h2o_policy policy, const char* name, double value);
int mlx_h2o_policy_set_text(mlx_h2o_policy policy, const char* name, const char* value);
/* Layers, or the bounds of ranges: begin, end, begin, end, ... */
int mlx_h2o_policy_set_integers(
    mlx_h2o_policy policy, const char* name, const int64_t* values, size_t count);

/* Fills in what was left out, with the defaults of the policy `named` (null: the standard one),
 * and checks all of it; where settings of recall alone were given, these. Returns 1 where they
 * cannot be used: the problem says why, and no cache may be made of them. */
int mlx_h2o_policy_complete(mlx_h2o_policy policy, const char* named /* may be null */);

/* Settings once complete, and the rows that a recall chooses per KV head; 0 and "" for others,
 * and of no policy after an error. */
int64_t mlx_h2o_policy_integer(mlx_h2o_policy policy, const char* name);
double mlx_h2o_policy_number(mlx_h2o_policy policy, const char* name);
const char* mlx_h2o_policy_text(mlx_h2o_policy policy, const char* name);
int mlx_h2o_policy_recall_rows(mlx_h2o_policy policy);

/* Why a policy could not be completed, one problem, or what it is warned about: a code of
 * interface/errors.toml, and the values that belong to it; 0 and "" for others. */
size_t mlx_h2o_policy_problems(mlx_h2o_policy policy);
const char* mlx_h2o_policy_problem_code(mlx_h2o_policy policy, size_t index);
int64_t mlx_h2o_policy_problem_integer(
    mlx_h2o_policy policy, size_t index, const char* name);
const char* mlx_h2o_policy_problem_text(
    mlx_h2o_policy policy, size_t index, const char* name);

/* What a cache is made of; fields that are left out should be zero. */
typedef struct mlx_h2o_config_ {
  mlx_h2o_policy policy; /* complete; may be freed after the call */
  int key_bits;          /* 16: keys as they are; 4 or 8: quantized */
  int value_bits;        /* the same for values; 16 only together with keys */
  int group_size;        /* 32, 64 or 128 elements share a scale and a bias */
  mlx_dtype dtype;       /* of keys and values; read only where any are quantized */
  int recent_bits; /* 4, 8 or 16 for the newest `recent_budget` tokens, which a ring then
                      holds; 0: no ring */
  bool rotated;    /* whether rows hold keys and values that were rotated, which loses less
                      where bits are few; what goes in and comes out is not rotated */
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

/* What the last function on this thread refused, if the core has a code for it: the code, or ""
 * if it has none or nothing failed, and named values that belong to it. All are texts that live
 * until the next call on this thread. Codes are those of h2o::CacheError and h2o::ArchiveError,
 * whose values are `path` and `error`, errno or 0. */
const char* mlx_h2o_error_code(void);
size_t mlx_h2o_error_values(void);
const char* mlx_h2o_error_name(size_t index);  /* null past the last */
const char* mlx_h2o_error_value(size_t index); /* null past the last */

/* Told what a cache goes on without: a code, and of an archive in files path and errno, "" and 0
 * otherwise. May be called by every function that takes a cache, on its thread. */
typedef void (*mlx_h2o_notice_handler)(
    const char* code, const char* path, int error, void* data);

/* Null tells nobody, as at first. `dtor` (may be null) frees `data` when another handler comes. */
void mlx_h2o_set_notice_handler(
    mlx_h2o_notice_handler handler, void* data, void (*dtor)(void*));

/* The cache of one layer; one thread at a time may use it. A null `ctx` is none. */
typedef struct mlx_h2o_layer_cache_ {
  void* ctx;
} mlx_h2o_layer_cache;

/* What the caches of one conversation share to choose together; see
 * mlx_h2o_layer_cache_join. */
typedef struct mlx_h2o_prompt_choice_ {
  void* ctx;
} mlx_h2o_prompt_choice;

/* An empty cache. Where the first write cannot make the archive the cache goes on without
 * recall: the notice has the error's code. */
int mlx_h2o_layer_cache_new(mlx_h2o_layer_cache* res, const mlx_h2o_config config);

int mlx_h2o_layer_cache_free(mlx_h2o_layer_cache cache);

/* An independent cache in the same state. Each of the two copies the rows when it writes next;
 * segments of an archive are shared. */
int mlx_h2o_layer_cache_copy(mlx_h2o_layer_cache* res, const mlx_h2o_layer_cache cache);

/* Writes new tokens, [B, Hkv, L, Dk] after RoPE and [B, Hkv, L, Dv], and gives keys and values
 * of all rows in use, [B, Hkv, N, D], the new ones included, for attention that is computed
 * elsewhere. They stay as they are: the next write copies. */
int mlx_h2o_layer_cache_write(
    mlx_array* keys,
    mlx_array* values,
    const mlx_h2o_layer_cache cache,
    const mlx_array new_keys,
    const mlx_array new_values,
    const mlx_stream s);

/* Attention [B, Hq, L, Dv] of new tokens over the rows in use, from which follows what goes next.
 * Writes `keys` and `values` first, in place; null: the tokens are those of the last write.
 * queries [B, Hq, L, Dk]; mask_mode "" or "causal"; mask_arr broadcastable to [B, Hq, L, N];
 * sinks [Hq]. */
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

/* Enters the written tokens without scores, and evicts down to C. */
int mlx_h2o_layer_cache_settle(const mlx_h2o_layer_cache cache, const mlx_stream s);

/* Brings back what was chosen, and writes tokens that nobody attended without recall. */
int mlx_h2o_layer_cache_finish(const mlx_h2o_layer_cache cache, const mlx_stream s);

/* Removes the newest `n` tokens; *res is how many went, 0 after an eviction. */
int mlx_h2o_layer_cache_trim(
    int* res, const mlx_h2o_layer_cache cache, int n, const mlx_stream s);

/* Makes the next write copy the rows, which something still reads. */
int mlx_h2o_layer_cache_share(const mlx_h2o_layer_cache cache);

int mlx_h2o_prompt_choice_new(mlx_h2o_prompt_choice* res);
int mlx_h2o_prompt_choice_free(mlx_h2o_prompt_choice choice);

/* Lets the cache of a layer read everything at prompts, and choose what comes back together with
 * all that have the same choice, which it keeps alive. */
int mlx_h2o_layer_cache_join(
    const mlx_h2o_layer_cache cache, const mlx_h2o_prompt_choice choice, int layer);

/* Goes on with the archive in files of a new folder; nothing where there is no archive. */
int mlx_h2o_layer_cache_move_archive(
    const mlx_h2o_layer_cache cache, const char* folder, const mlx_stream s);

/* Tokens seen so far; rows in use; written tokens whose attention is outstanding; whether the
 * newest tokens can be removed. Of no cache 0, after an error. */
int mlx_h2o_layer_cache_offset(const mlx_h2o_layer_cache cache);
int mlx_h2o_layer_cache_length(const mlx_h2o_layer_cache cache);
int mlx_h2o_layer_cache_waiting(const mlx_h2o_layer_cache cache);
bool mlx_h2o_layer_cache_is_trimmable(const mlx_h2o_layer_cache cache);

typedef struct mlx_h2o_layer_numbers_ {
  int value_dim;         /* 0 before the first values */
  mlx_dtype dtype;       /* of keys and values where any are quantized */
  size_t row_bytes;      /* of the buffers, spare rows included */
  size_t ledger_bytes;   /* of scores, positions and what else decides what is evicted */
  bool recalls;          /* whether there is an archive */
  size_t archive_bytes;  /* in memory or in files */
  int64_t recalled;      /* rows that came back, of all heads */
  double recall_seconds; /* that choosing and bringing them took */
} mlx_h2o_layer_numbers;

int mlx_h2o_layer_cache_numbers(
    mlx_h2o_layer_numbers* res, const mlx_h2o_layer_cache cache);

/* What is known about each row, none while the cache is empty: scores float32 [B, Hkv, C], -1
 * where not yet observed; positions int32 [B, Hkv, C], -1 where the row is empty; novelty
 * float32 [B, Hkv, C]; the sum of all unit keys float32 [B, Hkv, Dk]; the row that the next token
 * takes, int32 [B, Hkv]; with recall also held bool [B, Hkv, C], the rows that no eviction
 * takes. */
int mlx_h2o_layer_cache_ledger(mlx_vector_array* res, const mlx_h2o_layer_cache cache);

/* The buffers of the rows, which the next write changes unless they are shared: the pool
 * [B, Hkv, capacity, Dk + Dv], or uint32 words of quantized rows, then the ring. */
int mlx_h2o_layer_cache_rows(mlx_vector_array* res, const mlx_h2o_layer_cache cache);

/* The positions that came back for the last prompt in all layers, int32 [B, M]; *res is left
 * alone where there are none. */
int mlx_h2o_layer_cache_chosen(mlx_array* res, const mlx_h2o_layer_cache cache);

/* What is saved: the rows in use of each buffer, where a row of zeros stands for none, then the
 * ledger's arrays, then the positions that all layers recalled last, if any, then those of the
 * archive; none while the cache is empty. */
int mlx_h2o_layer_cache_arrays(
    mlx_vector_array* res, const mlx_h2o_layer_cache cache, const mlx_stream s);

/* What a saved cache knows of its archive beside the arrays. */
typedef struct mlx_h2o_saved_archive_ {
  int64_t first;       /* the oldest position that is still there */
  int64_t since;       /* single tokens since the last recall */
  int bits;            /* 4, 8, or 16 for keys and values as they come */
  int group_size;      /* elements that share a scale and a bias */
  mlx_dtype dtype;     /* of keys and values */
  const char* session; /* of its files; null: it is in memory */
  int64_t count;       /* segments in files, those dropped included */
  const char* chain;   /* of their digests, hexadecimal */
} mlx_h2o_saved_archive;

/* *res has texts that live until the next call for this cache; *recalls is false without an
 * archive. */
int mlx_h2o_layer_cache_archive(
    mlx_h2o_saved_archive* res, bool* recalls, const mlx_h2o_layer_cache cache);

/* What a saved cache said of itself, of which nothing is trusted. */
typedef struct mlx_h2o_saved_cache_ {
  int64_t offset, length;
  int64_t pending;       /* tokens written whose attention is outstanding */
  mlx_h2o_config config; /* whose `recall.store` is the folder that the caller gives */
  const mlx_h2o_saved_archive* archive; /* may be null */
  mlx_vector_array arrays;              /* as mlx_h2o_layer_cache_arrays gives them */
} mlx_h2o_saved_cache;

/* The cache that had these arrays. Checks everything before it uses anything. */
int mlx_h2o_layer_cache_restore(
    mlx_h2o_layer_cache* res, const mlx_h2o_saved_cache saved, const mlx_stream s);

/* Removes the folders in `root` that hold archives and are not open anywhere: of sessions that
 * ended without removing theirs. */
int mlx_h2o_delete_stale_archives(const char* root);

#ifdef __cplusplus
}
#endif

#endif
