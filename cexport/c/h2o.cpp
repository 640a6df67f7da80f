#include "mlx/c/h2o.h"

#include "functions.h"
#include "mlx/c/error.h"
#include "mlx/c/private/mlx.h"
#include "mlx/ops.h"
#include "policy_of.h"

namespace mx = mlx::core;

namespace {

mx::Dtype dtype_of(mlx_dtype dtype) {
  switch (dtype) {
    case MLX_FLOAT16:
      return mx::float16;
    case MLX_BFLOAT16:
      return mx::bfloat16;
    default:
      return mx::float32;
  }
}

h2o::CacheConfig config_of(const mlx_h2o_config& config) {
  return {
      h2o::policy_of(config.policy),
      {config.key_bits, config.value_bits, config.group_size, dtype_of(config.dtype),
       config.recent_bits}};
}

std::optional<mx::array> optional_array(mlx_array a) {
  return a.ctx ? std::make_optional(mlx_array_get_(a)) : std::nullopt;
}

h2o::Rows rows_of(const mlx_h2o_rows& rows) {
  return {mlx_array_get_(rows.pool), optional_array(rows.ring)};
}

void set_rows(mlx_h2o_rows* result, const h2o::Rows& rows) {
  mlx_array_set_(result->pool, rows.pool);
  if (rows.ring) {
    mlx_array_set_(result->ring, *rows.ring);
  }
}

h2o::Ledger ledger_of(const mlx_h2o_ledger& ledger) {
  return {mlx_array_get_(ledger.scores),  mlx_array_get_(ledger.positions),
          mlx_array_get_(ledger.novelty), mlx_array_get_(ledger.key_sum),
          mlx_array_get_(ledger.victim),  optional_array(ledger.held)};
}

void set_ledger(mlx_h2o_ledger* result, const h2o::Ledger& ledger) {
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

} // namespace

extern "C" int mlx_fast_scaled_dot_product_attention_with_scores(
    mlx_array* out,
    mlx_array* scores,
    const mlx_array queries,
    const mlx_array keys,
    const mlx_array values,
    float scale,
    const char* mask_mode,
    const mlx_array mask_arr,
    const mlx_array sinks,
    const mlx_stream s) {
  return guarded([&] {
    auto result = h2o::scaled_dot_product_attention_with_scores(
        mlx_array_get_(queries), mlx_array_get_(keys), mlx_array_get_(values), scale,
        h2o::make_mask(mask_mode ? mask_mode : "", optional_array(mask_arr)),
        optional_array(sinks), mlx_stream_get_(s));
    mlx_array_set_(*out, result.first);
    mlx_array_set_(*scores, result.second);
  });
}

extern "C" int mlx_fast_scaled_dot_product_attention_quantized_with_scores(
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
    const mlx_array mask_arr,
    const mlx_array sinks,
    const mlx_stream s) {
  return guarded([&] {
    auto result = h2o::scaled_dot_product_attention_quantized_with_scores(
        mlx_array_get_(queries),
        {mlx_array_get_(key_words), mlx_array_get_(key_scales), mlx_array_get_(key_biases)},
        {mlx_array_get_(value_words), mlx_array_get_(value_scales),
         mlx_array_get_(value_biases)},
        scale, {key_bits, value_bits, group_size},
        h2o::make_mask(mask_mode ? mask_mode : "", optional_array(mask_arr)),
        optional_array(sinks), mlx_stream_get_(s));
    mlx_array_set_(*out, result.first);
    mlx_array_set_(*scores, result.second);
  });
}

extern "C" int mlx_h2o_ledger_init(
    mlx_h2o_ledger* res,
    int batch,
    int kv_heads,
    int key_dim,
    const mlx_h2o_config config,
    const mlx_stream s) {
  return guarded([&] {
    set_ledger(
        res,
        h2o::make_ledger(batch, kv_heads, key_dim, config_of(config), mlx_stream_get_(s)));
  });
}

extern "C" int mlx_h2o_cache_write(
    mlx_h2o_rows* res,
    const mlx_h2o_write_arguments arguments,
    const mlx_h2o_config config,
    const mlx_stream s) {
  return guarded([&] {
    std::optional<h2o::Rows> rows;
    if (arguments.rows.pool.ctx) {
      rows = rows_of(arguments.rows);
    }
    auto written = h2o::cache_write(
        {std::move(rows), mlx_array_get_(arguments.keys), mlx_array_get_(arguments.values),
         mlx_array_get_(arguments.victim), arguments.offset, arguments.copy},
        config_of(config), mlx_stream_get_(s));
    set_rows(res, written);
  });
}

extern "C" int mlx_h2o_cache_attend(
    mlx_array* out,
    mlx_h2o_rows* rows_out,
    mlx_h2o_ledger* ledger_out,
    const mlx_h2o_attend_arguments arguments,
    const mlx_h2o_config config,
    const mlx_stream s) {
  return guarded([&] {
    auto result = h2o::cache_attend(
        {optional_array(arguments.queries), rows_of(arguments.rows),
         ledger_of(arguments.ledger), arguments.tokens, arguments.offset, arguments.scale,
         h2o::make_mask(
             arguments.mask_mode ? arguments.mask_mode : "",
             optional_array(arguments.mask_arr)),
         optional_array(arguments.sinks)},
        config_of(config), mlx_stream_get_(s));
    if (result.out) {
      mlx_array_set_(*out, *result.out);
    }
    set_rows(rows_out, result.rows);
    set_ledger(ledger_out, result.ledger);
  });
}

extern "C" int mlx_h2o_ledger_trim(
    mlx_h2o_ledger* res,
    const mlx_h2o_rows rows,
    const mlx_h2o_ledger ledger,
    int length,
    const mlx_h2o_config config,
    const mlx_stream s) {
  return guarded([&] {
    set_ledger(
        res, h2o::trim_ledger(
                 rows_of(rows), ledger_of(ledger), length, config_of(config),
                 mlx_stream_get_(s)));
  });
}

extern "C" int mlx_h2o_cache_fetch(
    mlx_array* keys,
    mlx_array* values,
    const mlx_h2o_rows rows,
    int key_dim,
    int offset,
    int tokens,
    const mlx_h2o_config config,
    const mlx_stream s) {
  return guarded([&] {
    auto result = h2o::cache_fetch(
        rows_of(rows), key_dim, offset, tokens, config_of(config), mlx_stream_get_(s));
    mlx_array_set_(*keys, result.first);
    mlx_array_set_(*values, result.second);
  });
}
