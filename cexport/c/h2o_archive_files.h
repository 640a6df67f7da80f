/* The archives of caches in files: a folder per conversation, in it one per layer. These
 * functions return 0 also where a file is wrong or the system refuses: `failure` says so. */
#ifndef MLX_H2O_ARCHIVE_FILES_H
#define MLX_H2O_ARCHIVE_FILES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mlx_h2o_archive_problem_ {
  MLX_H2O_ARCHIVE_FINE = 0,
  MLX_H2O_ARCHIVE_LOCKED,      /* open elsewhere, in this process or another */
  MLX_H2O_ARCHIVE_NOT_EMPTY,   /* holds the archive of another conversation */
  MLX_H2O_ARCHIVE_OTHER,       /* is not, or no longer, the one of the saved cache */
  MLX_H2O_ARCHIVE_TOO_SHORT,   /* ends before the saved cache does */
  MLX_H2O_ARCHIVE_DAMAGED,     /* a file is missing or not as it was written */
  MLX_H2O_ARCHIVE_UNUSABLE,    /* the system refused */
  MLX_H2O_ARCHIVE_NOT_WRITTEN, /* later: the system refused; the archive is lost */
  MLX_H2O_ARCHIVE_NOT_READ,    /* later: refused, or not as written; it is lost */
  MLX_H2O_ARCHIVE_TOO_SLOW,    /* later: more waited than memory allows; it is lost */
  MLX_H2O_ARCHIVE_FORKED       /* later: used in a forked process, which has none */
} mlx_h2o_archive_problem;

typedef struct mlx_h2o_archive_failure_ {
  mlx_h2o_archive_problem problem;
  int error;       /* errno, or 0 where the system refused nothing */
  char path[1024]; /* the file or folder, cut where it is longer */
} mlx_h2o_archive_failure;

/* Where a saved cache's archive ends in its folder. */
typedef struct mlx_h2o_archive_mark_ {
  char session[33];
  char chain[65];
  int64_t count;
} mlx_h2o_archive_mark;

typedef struct mlx_h2o_archive_folder_ {
  void* ctx; /* null: none */
} mlx_h2o_archive_folder;

/* Makes or continues the folder of one layer, and locks it until it is freed. `mark` is null
   for a new archive. */
int mlx_h2o_archive_folder_open(
    mlx_h2o_archive_folder* res,
    mlx_h2o_archive_failure* failure,
    const char* path,
    const mlx_h2o_archive_mark* mark);

int mlx_h2o_archive_folder_free(mlx_h2o_archive_folder folder);

/* Removes a conversation's folder of layers; nothing is removed while a layer is open. */
int mlx_h2o_archive_delete(mlx_h2o_archive_failure* failure, const char* folder);

/* Removes the folders in `root` that hold archives, are not open anywhere and are not among
   the names in `keep`: of sessions that ended without removing theirs. */
int mlx_h2o_archives_delete_stale(
    mlx_h2o_archive_failure* failure,
    const char* root,
    const char* const* keep,
    int keep_count);

#ifdef __cplusplus
}
#endif

#endif
