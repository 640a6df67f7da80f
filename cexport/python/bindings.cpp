#include "bindings.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "fallback.h"
#include "functions.h"
#include "kernels.h"
#include "mixed.h"
#include "mlx/ops.h"
#include "policy_from.h"
#include "row_layout.h"

namespace nb = nanobind;
namespace mx = mlx::core;
using namespace nb::literals;

namespace {

/// None, "causal" or an array, as mlx_lm hands masks around.
using MaskArgument = std::variant<std::monostate, std::string, mx::array>;

h2o::Mask mask_of(const MaskArgument& mask) {
  if (auto mode = std::get_if<std::string>(&mask)) {
    return h2o::make_mask(*mode, std::nullopt);
  }
  if (auto values = std::get_if<mx::array>(&mask)) {
    return h2o::make_mask("", *values);
  }
  return {};
}

using LedgerTuple = std::tuple<mx::array, mx::array, mx::array, mx::array, mx::array>;

LedgerTuple to_tuple(const h2o::Ledger& ledger) {
  return {ledger.scores, ledger.positions, ledger.novelty, ledger.key_sum, ledger.victim};
}

h2o::Ledger to_ledger(const LedgerTuple& t) {
  return {std::get<0>(t), std::get<1>(t), std::get<2>(t), std::get<3>(t), std::get<4>(t)};
}

std::tuple<std::optional<mx::array>, mx::array, LedgerTuple> attended(
    const h2o::Attended& result) {
  return {result.out, result.rows, to_tuple(result.ledger)};
}

} // namespace

namespace h2o::python {

void bind(nb::module_& m) {
  nb::module_::import_("mlx.core"); // brings mx.array and libmlx

  nb::class_<h2o::CacheConfig>(m, "CacheConfig")
      .def(
          "__init__",
          [](h2o::CacheConfig* self, nb::handle policy, int key_bits, int value_bits,
             int group_size, const mx::Dtype& dtype) {
            h2o::CacheConfig config{
                policy_from(policy), {key_bits, value_bits, group_size, dtype}};
            h2o::validate(config);
            new (self) h2o::CacheConfig(std::move(config));
          },
          "policy"_a, nb::kw_only(), "key_bits"_a, "value_bits"_a, "group_size"_a,
          "dtype"_a);

  m.def(
      "scaled_dot_product_attention_with_scores",
      [](const mx::array& queries, const mx::array& keys, const mx::array& values,
         float scale, const MaskArgument& mask, const std::optional<mx::array>& sinks,
         bool fallback) {
        if (fallback) {
          return h2o::fallback::scaled_dot_product_attention_with_scores(
              queries, keys, values, scale, mask_of(mask), sinks, {});
        }
        return h2o::scaled_dot_product_attention_with_scores(
            queries, keys, values, scale, mask_of(mask), sinks);
      },
      "queries"_a, "keys"_a, "values"_a, nb::kw_only(), "scale"_a, "mask"_a = nb::none(),
      "sinks"_a = nb::none(), "fallback"_a = false);

  m.def(
      "scaled_dot_product_attention_quantized_with_scores",
      [](const mx::array& queries, const std::vector<mx::array>& keys,
         const std::vector<mx::array>& values, float scale, int key_bits, int value_bits,
         int group_size, const MaskArgument& mask, const std::optional<mx::array>& sinks) {
        return h2o::scaled_dot_product_attention_quantized_with_scores(
            queries, keys, values, scale, {key_bits, value_bits, group_size}, mask_of(mask),
            sinks);
      },
      "queries"_a, "keys"_a, "values"_a, nb::kw_only(), "scale"_a, "key_bits"_a,
      "value_bits"_a, "group_size"_a, "mask"_a = nb::none(), "sinks"_a = nb::none());

  m.def(
      "unpacked_rows",
      [](const mx::array& rows, int length, int key_dim, const h2o::CacheConfig& config) {
        auto stop = rows.shape();
        stop[2] = length;
        return h2o::unpacked_rows(
            mx::slice(rows, mx::Shape(4, 0), stop), config.format, key_dim,
            config.format.dtype, {});
      },
      "rows"_a, "length"_a, "key_dim"_a, "config"_a);

  m.def(
      "make_ledger",
      [](int batch, int kv_heads, int key_dim, const h2o::CacheConfig& config) {
        return to_tuple(h2o::make_ledger(batch, kv_heads, key_dim, config));
      },
      "batch"_a, "kv_heads"_a, "key_dim"_a, "config"_a);

  m.def(
      "trim_ledger",
      [](const mx::array& rows, const LedgerTuple& ledger, int length,
         const h2o::CacheConfig& config) {
        return to_tuple(h2o::trim_ledger(rows, to_ledger(ledger), length, config.format));
      },
      "rows"_a, "ledger"_a, "length"_a, "config"_a);

  m.def(
      "cache_write",
      [](const std::optional<mx::array>& rows, const mx::array& keys,
         const mx::array& values, const mx::array& victim, int length,
         const h2o::CacheConfig& config, bool copy) {
        return h2o::cache_write(rows, keys, values, victim, length, config, copy);
      },
      "rows"_a.none(), "keys"_a, "values"_a, "victim"_a, "length"_a, "config"_a,
      nb::kw_only(), "copy"_a = false);

  m.def(
      "cache_attend",
      [](const std::optional<mx::array>& queries, const mx::array& rows,
         const LedgerTuple& ledger, int tokens, int offset, int length,
         const h2o::CacheConfig& config, float scale, const MaskArgument& mask,
         const std::optional<mx::array>& sinks, bool fallback) {
        auto attend = fallback ? h2o::fallback::cache_attend : h2o::cache_attend;
        return attended(attend(
            queries, rows, to_ledger(ledger), tokens, offset, length, scale, mask_of(mask),
            sinks, config, {}));
      },
      "queries"_a.none(), "rows"_a, "ledger"_a, nb::kw_only(), "tokens"_a, "offset"_a,
      "length"_a, "config"_a, "scale"_a = 1.0f, "mask"_a = nb::none(),
      "sinks"_a = nb::none(), "fallback"_a = false);

  nb::class_<h2o::MixedConfig>(m, "MixedConfig")
      .def(
          "__init__",
          [](h2o::MixedConfig* self, const h2o::CacheConfig& policy, int heavy_bits,
             int recent_bits, int group_size, const mx::Dtype& dtype) {
            h2o::MixedConfig config{policy, heavy_bits, recent_bits, group_size, dtype};
            h2o::validate(config);
            new (self) h2o::MixedConfig(std::move(config));
          },
          "policy"_a, nb::kw_only(), "heavy_bits"_a, "recent_bits"_a, "group_size"_a,
          "dtype"_a);

  m.def(
      "mixed_cache_write",
      [](const std::optional<std::pair<mx::array, mx::array>>& rows, const mx::array& keys,
         const mx::array& values, const mx::array& victim, int offset,
         const h2o::MixedConfig& config, bool copy) {
        std::optional<h2o::MixedRows> given;
        if (rows) {
          given = {rows->first, rows->second};
        }
        auto written =
            h2o::mixed_cache_write(given, keys, values, victim, offset, config, copy);
        return std::pair{written.pool, written.ring};
      },
      "rows"_a.none(), "keys"_a, "values"_a, "victim"_a, "offset"_a, "config"_a,
      nb::kw_only(), "copy"_a = false);

  m.def(
      "mixed_cache_attend",
      [](const std::optional<mx::array>& queries,
         const std::pair<mx::array, mx::array>& rows, const LedgerTuple& ledger, int tokens,
         int offset, int key_dim, int value_dim, const h2o::MixedConfig& config,
         float scale, const MaskArgument& mask, const std::optional<mx::array>& sinks,
         bool fallback) {
        auto attend =
            fallback ? h2o::fallback::mixed_cache_attend : h2o::mixed_cache_attend;
        auto result = attend(
            queries, {rows.first, rows.second}, to_ledger(ledger), tokens, offset, key_dim,
            value_dim, scale, mask_of(mask), sinks, config, {});
        return std::tuple{
            result.out, std::pair{result.rows.pool, result.rows.ring},
            to_tuple(result.ledger)};
      },
      "queries"_a.none(), "rows"_a, "ledger"_a, nb::kw_only(), "tokens"_a, "offset"_a,
      "key_dim"_a, "value_dim"_a, "config"_a, "scale"_a = 1.0f, "mask"_a = nb::none(),
      "sinks"_a = nb::none(), "fallback"_a = false);

  m.def(
      "mixed_fetch",
      [](const std::pair<mx::array, mx::array>& rows, int pooled, int ringed, int key_dim,
         const h2o::MixedConfig& config) {
        return h2o::mixed_fetch({rows.first, rows.second}, pooled, ringed, key_dim, config);
      },
      "rows"_a, "pooled"_a, "ringed"_a, "key_dim"_a, "config"_a);

  m.def("instruction_set", [] { return std::string(h2o::cpu::instruction_set()); });
  m.def("instruction_sets", &h2o::cpu::instruction_sets);
  m.def("use_instruction_set", [](const std::string& name) {
    h2o::cpu::use_instruction_set(name.c_str());
  });
}

} // namespace h2o::python
