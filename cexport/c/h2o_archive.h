/* Recall of evicted rows from an archive, in the conventions of h2o.h.
 *
 * Shapes: B batch, Hq query heads, Hkv KV heads, L new tokens, A tokens that ask, Dk and Dv the
 * head dims of keys and values, n tokens of a block. */
#ifndef MLX_H2O_ARCHIVE_H
#define MLX_H2O_ARCHIVE_H

#include <stdint.h>

#include "mlx/c/h2o.h"
#include "mlx/c/h2o_archive_files.h"
#include "mlx/c/vector.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Key, value and novelty of all tokens that a cache has seen, packed. */
typedef struct mlx_h2o_archive_ {
  void* ctx;
} mlx_h2o_archive;

/* What is known about an archive beside its arrays. */
typedef struct mlx_h2o_archive_state_ {
  int length;      /* tokens seen so far */
  int first;       /* the oldest position that is still there */
  int bits;        /* 4, 8, or 16 for keys and values as they come */
  int group_size;  /* elements that share a scale and a bias */
  mlx_dtype dtype; /* of keys and values */
  int64_t nbytes;  /* of all that is archived; not read */
} mlx_h2o_archive_state;

mlx_h2o_archive mlx_h2o_archive_new(void);

/* An empty archive; `group_size` is 32, 64 or 128 and divides the head dims. Whole segments go
 * to `folder`, if there is one, of which the archive keeps its own handle. */
int mlx_h2o_archive_init(
    mlx_h2o_archive* res,
    const mlx_h2o_recall recall,
    int group_size,
    const mlx_h2o_archive_folder folder);

/* The archive that had these arrays and this state; `folder` has the segments before them.
 * Returns 0 also where the folder does not fit: `failure` says so, and *res is left alone. */
int mlx_h2o_archive_restore(
    mlx_h2o_archive* res,
    mlx_h2o_archive_failure* failure,
    const mlx_vector_array arrays,
    const mlx_h2o_recall recall,
    const mlx_h2o_archive_state state,
    int key_dim,
    const mlx_h2o_archive_folder folder);

/* One of its own that shares whole segments with `src`. */
int mlx_h2o_archive_copy(mlx_h2o_archive* res, const mlx_h2o_archive src);

int mlx_h2o_archive_free(mlx_h2o_archive archive);

/* Adds tokens: keys [B, Hkv, L, Dk] as the cache is given them, values [B, Hkv, L, Dv], and
 * its ledger's key_sum from before them. `config` is the cache's. */
int mlx_h2o_archive_append(
    mlx_h2o_archive archive,
    const mlx_array keys,
    const mlx_array values,
    const mlx_array key_sum,
    const mlx_h2o_config config,
    const mlx_stream s);

/* Drops the newest `n` tokens. */
int mlx_h2o_archive_trim(mlx_h2o_archive archive, int n, const mlx_stream s);

/* Rows [B, Hkv, n, words] and novelty [B, Hkv, n] of each segment, then of the tokens after
 * the last one. Segments in files are left out. */
int mlx_h2o_archive_arrays(
    mlx_vector_array* res, const mlx_h2o_archive archive, const mlx_stream s);

int mlx_h2o_archive_get_state(mlx_h2o_archive_state* res, const mlx_h2o_archive archive);

/* Where the archive ends in its files; *has_files is false where it is in memory. */
int mlx_h2o_archive_get_mark(
    mlx_h2o_archive_mark* res, bool* has_files, const mlx_h2o_archive archive);

/* Why the archive is of no more use; memory never fails. */
int mlx_h2o_archive_get_failure(
    mlx_h2o_archive_failure* res, const mlx_h2o_archive archive);

/* Tokens that ask, before they are written. */
typedef struct mlx_h2o_recall_arguments_ {
  mlx_array queries; /* [B, Hq, A, Dk] */
  mlx_array keys;    /* [B, Hkv, A, Dk] */
  mlx_h2o_rows rows;
  mlx_h2o_ledger ledger;
  mlx_h2o_archive archive; /* of all tokens before them */
  int offset;              /* how many those are */
  float scale;
  const char* mask_mode; /* "" or "causal", which mean the same here; may be null */
  mlx_array mask_arr;    /* broadcastable to [B, Hq, A, A], what they see of each other; may
                            be null */
  mlx_array sinks;       /* [Hq]; may be null */
} mlx_h2o_recall_arguments;

/* Brings the rows back that tokens ask for, in the place of those of least importance.
 * `held` of *ledger_out says what was chosen. *rows_out are new buffers if rows came, else the
 * given ones; *count is how many came, of all heads. Evaluates its arguments. */
int mlx_h2o_recall_rows(
    mlx_h2o_rows* rows_out,
    mlx_h2o_ledger* ledger_out,
    int* count,
    const mlx_h2o_recall_arguments arguments,
    const mlx_h2o_config config,
    const mlx_stream s);

#ifdef __cplusplus
}
#endif

#endif
