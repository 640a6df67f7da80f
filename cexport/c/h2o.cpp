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
      {config.key_bits, config.value_bits, config.group_size, dtype_of(config.dtype)}};
}

h2o::CacheConfig mixed_of(const mlx_h2o_config& config, const mlx_h2o_mixed& mixed) {
  return {
      h2o::policy_of(config.policy),
      {mixed.heavy_bits, mixed.heavy_bits, config.group_size, dtype_of(config.dtype),
       mixed.recent_bits}};
}

std::optional<mx::array> optional_array(mlx_array a) {
  return a.ctx ? std::make_optional(mlx_array_get_(a)) : std::nullopt;
}

h2o::Ledger ledger_of(const mlx_h2o_ledger& ledger) {
  return {
      mlx_array_get_(ledger.scores), mlx_array_get_(ledger.positions),
      mlx_array_get_(ledger.novelty), mlx_array_get_(ledger.key_sum),
      mlx_array_get_(ledger.victim)};
}

void set_ledger(mlx_h2o_ledger* result, const h2o::Ledger& ledger) {
  mlx_array_set_(result->scores, ledger.scores);
  mlx_array_set_(result->positions, ledger.positions);
  mlx_array_set_(result->novelty, ledger.novelty);
  mlx_array_set_(result->key_sum, ledger.key_sum);
  mlx_array_set_(result->victim, ledger.victim);
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
        h2o::make_mask(mask_mode, optional_array(mask_arr)), optional_array(sinks),
        mlx_stream_get_(s));
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
        h2o::make_mask(mask_mode, optional_array(mask_arr)), optional_array(sinks),
        mlx_stream_get_(s));
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

extern "C" int mlx_h2o_ledger_free(mlx_h2o_ledger ledger) {
  return guarded([&] {
    for (auto a :
         {ledger.scores, ledger.positions, ledger.novelty, ledger.key_sum, ledger.victim}) {
      mlx_array_free_(a);
    }
  });
}

extern "C" int mlx_h2o_cache_write(
    mlx_array* res,
    const mlx_array rows,
    const mlx_array keys,
    const mlx_array values,
    const mlx_array victim,
    int length,
    const mlx_h2o_config config,
    bool copy,
    const mlx_stream s) {
  return guarded([&] {
    std::optional<h2o::Rows> given;
    if (rows.ctx) {
      given = {mlx_array_get_(rows)};
    }
    auto written = h2o::cache_write(
        {given, mlx_array_get_(keys), mlx_array_get_(values), mlx_array_get_(victim),
         length, copy},
        config_of(config), mlx_stream_get_(s));
    mlx_array_set_(*res, written.pool);
  });
}

extern "C" int mlx_h2o_cache_attend(
    mlx_array* out,
    mlx_array* rows_out,
    mlx_h2o_ledger* ledger_out,
    const mlx_array queries,
    const mlx_array rows,
    const mlx_h2o_ledger ledger,
    int tokens,
    int offset,
    int,
    float scale,
    const char* mask_mode,
    const mlx_array mask_arr,
    const mlx_array sinks,
    const mlx_h2o_config config,
    const mlx_stream s) {
  return guarded([&] {
    auto result = h2o::cache_attend(
        {optional_array(queries),
         {mlx_array_get_(rows)},
         ledger_of(ledger),
         tokens,
         offset,
         scale,
         h2o::make_mask(mask_mode, optional_array(mask_arr)),
         optional_array(sinks)},
        config_of(config), mlx_stream_get_(s));
    if (result.out) {
      mlx_array_set_(*out, *result.out);
    }
    mlx_array_set_(*rows_out, result.rows.pool);
    set_ledger(ledger_out, result.ledger);
  });
}

extern "C" int mlx_h2o_ledger_trim(
    mlx_h2o_ledger* res,
    const mlx_array rows,
    const mlx_h2o_ledger ledger,
    int length,
    const mlx_h2o_config config,
    const mlx_stream s) {
  return guarded([&] {
    set_ledger(
        res, h2o::trim_ledger(
                 {mlx_array_get_(rows)}, ledger_of(ledger), length, config_of(config),
                 mlx_stream_get_(s)));
  });
}

extern "C" int mlx_h2o_cache_fetch(
    mlx_array* keys,
    mlx_array* values,
    const mlx_array rows,
    int length,
    int key_dim,
    const mlx_h2o_config config,
    const mlx_stream s) {
  return guarded([&] {
    auto settings = config_of(config);
    const int kept = std::min(length, settings.max_size);
    auto result = h2o::cache_fetch(
        {mlx_array_get_(rows)}, key_dim, kept, length - kept, settings, mlx_stream_get_(s));
    mlx_array_set_(*keys, result.first);
    mlx_array_set_(*values, result.second);
  });
}

extern "C" int mlx_h2o_mixed_cache_write(
    mlx_array* pool_out,
    mlx_array* ring_out,
    const mlx_array pool,
    const mlx_array ring,
    const mlx_array keys,
    const mlx_array values,
    const mlx_array victim,
    int offset,
    const mlx_h2o_config config,
    const mlx_h2o_mixed mixed,
    bool copy,
    const mlx_stream s) {
  return guarded([&] {
    std::optional<h2o::Rows> rows;
    if (pool.ctx) {
      rows = {mlx_array_get_(pool), mlx_array_get_(ring)};
    }
    auto written = h2o::cache_write(
        {rows, mlx_array_get_(keys), mlx_array_get_(values), mlx_array_get_(victim), offset,
         copy},
        mixed_of(config, mixed), mlx_stream_get_(s));
    mlx_array_set_(*pool_out, written.pool);
    mlx_array_set_(*ring_out, *written.ring);
  });
}

extern "C" int mlx_h2o_mixed_cache_attend(
    mlx_array* out,
    mlx_array* pool_out,
    mlx_array* ring_out,
    mlx_h2o_ledger* ledger_out,
    const mlx_array queries,
    const mlx_array pool,
    const mlx_array ring,
    const mlx_h2o_ledger ledger,
    int tokens,
    int offset,
    int,
    float scale,
    const char* mask_mode,
    const mlx_array mask_arr,
    const mlx_array sinks,
    const mlx_h2o_config config,
    const mlx_h2o_mixed mixed,
    const mlx_stream s) {
  return guarded([&] {
    auto result = h2o::cache_attend(
        {optional_array(queries),
         {mlx_array_get_(pool), mlx_array_get_(ring)},
         ledger_of(ledger),
         tokens,
         offset,
         scale,
         h2o::make_mask(mask_mode, optional_array(mask_arr)),
         optional_array(sinks)},
        mixed_of(config, mixed), mlx_stream_get_(s));
    if (result.out) {
      mlx_array_set_(*out, *result.out);
    }
    mlx_array_set_(*pool_out, result.rows.pool);
    mlx_array_set_(*ring_out, *result.rows.ring);
    set_ledger(ledger_out, result.ledger);
  });
}

extern "C" int mlx_h2o_mixed_cache_fetch(
    mlx_array* keys,
    mlx_array* values,
    const mlx_array pool,
    const mlx_array ring,
    int pooled,
    int ringed,
    int key_dim,
    const mlx_h2o_config config,
    const mlx_h2o_mixed mixed,
    const mlx_stream s) {
  return guarded([&] {
    auto settings = mixed_of(config, mixed);
    const int tokens = std::max(0, ringed - settings.recent_budget);
    auto result = h2o::cache_fetch(
        {mlx_array_get_(pool), mlx_array_get_(ring)}, key_dim, pooled + ringed - tokens,
        tokens, settings, mlx_stream_get_(s));
    mlx_array_set_(*keys, result.first);
    mlx_array_set_(*values, result.second);
  });
}
