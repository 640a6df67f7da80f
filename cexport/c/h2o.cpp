#include "mlx/c/h2o.h"

#include "c_conversions.h"
#include "mlx/ops.h"

namespace mx = mlx::core;

using namespace h2o::c;

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
