#include "conversions.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "archive_files.h"
#include "functions.h"
#include "kernels.h"
#include "metal/encode.h"
#include "mlx/ops.h"
#include "policy_from.h"

namespace nb = nanobind;
namespace mx = mlx::core;
using namespace nb::literals;

namespace h2o::python {

void bind_attend(nb::module_& m, const char* name, AttendFunction attend) {
  m.def(
      name,
      [attend](
          const std::optional<mx::array>& queries, const RowsList& rows,
          const LedgerTuple& ledger, int key_dim, int tokens, int offset,
          const h2o::CacheConfig& config, float scale, const MaskArgument& mask,
          const std::optional<mx::array>& sinks) {
        const h2o::AttendArguments arguments{queries, to_rows(rows), to_ledger(ledger),
                                             key_dim, tokens,        offset,
                                             scale,   mask_of(mask), sinks};
        h2o::check_attend(arguments, config);
        auto result = attend(arguments, config, {});
        return std::tuple{result.out, arrays_of(result.rows), to_tuple(result.ledger)};
      },
      "queries"_a.none(), "rows"_a, "ledger"_a, nb::kw_only(), "key_dim"_a, "tokens"_a,
      "offset"_a, "config"_a, "scale"_a = 1.0f, "mask"_a = nb::none(),
      "sinks"_a = nb::none());
}

void bind(nb::module_& m) {
  nb::module_::import_("mlx.core"); // loads mx.array and libmlx

  nb::class_<h2o::CacheConfig>(m, "CacheConfig")
      .def(
          "__init__",
          [](h2o::CacheConfig* self, nb::handle policy, int key_bits, int value_bits,
             int group_size, const mx::Dtype& dtype, int recent_bits, bool rotated) {
            h2o::CacheConfig config{
                policy_from(policy),
                {key_bits, value_bits, group_size, dtype, recent_bits, rotated}};
            h2o::validate(config.format);
            new (self) h2o::CacheConfig(std::move(config));
          },
          "policy"_a, nb::kw_only(), "key_bits"_a, "value_bits"_a, "group_size"_a,
          "dtype"_a, "recent_bits"_a, "rotated"_a);

  m.def(
      "scaled_dot_product_attention_with_scores",
      [](const mx::array& queries, const mx::array& keys, const mx::array& values,
         float scale, const MaskArgument& mask, const std::optional<mx::array>& sinks) {
        return h2o::scaled_dot_product_attention_with_scores(
            queries, keys, values, scale, mask_of(mask), sinks);
      },
      "queries"_a, "keys"_a, "values"_a, nb::kw_only(), "scale"_a, "mask"_a = nb::none(),
      "sinks"_a = nb::none());

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
      "make_ledger",
      [](int batch, int kv_heads, const h2o::CacheConfig& config) {
        return to_tuple(h2o::make_ledger(batch, kv_heads, config));
      },
      "batch"_a, "kv_heads"_a, "config"_a);

  m.def(
      "cache_write",
      [](const std::optional<RowsList>& rows, const mx::array& keys,
         const mx::array& values, const mx::array& victim, int offset,
         const h2o::CacheConfig& config, bool copy) {
        h2o::WriteArguments arguments{std::nullopt, keys, values, victim, offset, copy};
        if (rows) {
          arguments.rows = to_rows(*rows);
        }
        return arrays_of(h2o::cache_write(arguments, config));
      },
      "rows"_a.none(), "keys"_a, "values"_a, "victim"_a, "offset"_a, "config"_a,
      nb::kw_only(), "copy"_a = false);

  bind_attend(m, "cache_attend", &h2o::cache_attend);
  bind_layer_cache(m);
  m.def("compile_kernel", &h2o::metal::compile_kernel, "kernel"_a, "arguments"_a);
  m.def("scoring_pipelines", &h2o::metal::scoring_pipelines);
  m.def("instruction_set", [] { return h2o::cpu::kernels().name; });
}

} // namespace h2o::python
