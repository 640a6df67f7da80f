#pragma once

#include "functions.h"
#include "mlx/c/error.h"
#include "mlx/c/h2o.h"
#include "mlx/c/private/mlx.h"
#include "policy_of.h"

/// From the C interface's types to the core's and back.
namespace h2o::c {

namespace mx = mlx::core;

inline mx::Dtype dtype_of(mlx_dtype dtype) {
  switch (dtype) {
    case MLX_FLOAT16:
      return mx::float16;
    case MLX_BFLOAT16:
      return mx::bfloat16;
    default:
      return mx::float32;
  }
}

inline CacheConfig config_of(const mlx_h2o_config& config) {
  return {
      policy_of(config.policy),
      {config.key_bits, config.value_bits, config.group_size, dtype_of(config.dtype),
       config.recent_bits, config.rotated}};
}

inline std::optional<mx::array> optional_array(mlx_array a) {
  return a.ctx ? std::make_optional(mlx_array_get_(a)) : std::nullopt;
}

inline Rows rows_of(const mlx_h2o_rows& rows) {
  return {mlx_array_get_(rows.pool), optional_array(rows.ring)};
}

inline void set_rows(mlx_h2o_rows* result, const Rows& rows) {
  mlx_array_set_(result->pool, rows.pool);
  if (rows.ring) {
    mlx_array_set_(result->ring, *rows.ring);
  }
}

inline Ledger ledger_of(const mlx_h2o_ledger& ledger) {
  return {mlx_array_get_(ledger.scores),  mlx_array_get_(ledger.positions),
          mlx_array_get_(ledger.novelty), mlx_array_get_(ledger.key_sum),
          mlx_array_get_(ledger.victim),  optional_array(ledger.held)};
}

inline void set_ledger(mlx_h2o_ledger* result, const Ledger& ledger) {
  mlx_array_set_(result->scores, ledger.scores);
  mlx_array_set_(result->positions, ledger.positions);
  mlx_array_set_(result->novelty, ledger.novelty);
  mlx_array_set_(result->key_sum, ledger.key_sum);
  mlx_array_set_(result->victim, ledger.victim);
  if (ledger.held) {
    mlx_array_set_(result->held, *ledger.held);
  }
}

/// Runs `body`; an exception goes to the mlx error handler and becomes status 1.
/// Its text is an argument, never the format.
template <class Body>
int guarded(Body body) {
  try {
    body();
  } catch (std::exception& error) {
    mlx_error("%s", error.what());
    return 1;
  }
  return 0;
}

} // namespace h2o::c
