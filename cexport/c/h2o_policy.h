/* The settings of a cache and the rules between them, in the conventions of h2o.h. */
#ifndef MLX_H2O_POLICY_H
#define MLX_H2O_POLICY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which rows a cache keeps, and what recall brings back. Settings have the names of
 * interface/policy.toml; those of recall begin with "recall.", and any of them turns it on. */
typedef struct mlx_h2o_policy_ {
  void* ctx;
} mlx_h2o_policy;

/* None of its settings is given. */
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

/* Settings once complete, and the rows that a recall chooses per KV head; 0 and "" for others. */
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

#ifdef __cplusplus
}
#endif

#endif
