#include "recall.h"

#include <nanobind/stl/shared_ptr.h>

#include "conversions.h"
#include "policy_from.h"

namespace nb = nanobind;
namespace mx = mlx::core;
using namespace nb::literals;

namespace h2o::python {

namespace {

h2o::Recall settings_of(nb::handle recall) {
  auto settings = recall_from(recall);
  if (!settings) {
    throw std::invalid_argument("[Archive] recall is None; expected its settings.");
  }
  return *settings;
}

std::tuple<RowsTuple, LedgerTuple, int> to_tuple(const h2o::Recalled& recalled) {
  return {
      python::to_tuple(recalled.rows), python::to_tuple(recalled.ledger), recalled.count};
}

} // namespace

void bind_recall(nb::module_& m) {
  nb::class_<h2o::Archive>(m, "Archive")
      .def(
          "__init__",
          [](h2o::Archive* self, nb::handle recall,
             std::shared_ptr<h2o::SegmentFolder> folder) {
            new (self) h2o::Archive(settings_of(recall), std::move(folder));
          },
          "recall"_a, "folder"_a.none() = nb::none())
      .def(
          "append",
          [](h2o::Archive& archive, const mx::array& keys, const mx::array& values,
             const mx::array& key_sum, const h2o::CacheConfig& config) {
            archive.append(keys, values, key_sum, config);
          },
          "keys"_a, "values"_a, "key_sum"_a, "config"_a)
      .def(
          "trim", [](h2o::Archive& archive, int n) { archive.trim(n); }, "n"_a)
      .def("copy", [](const h2o::Archive& archive) { return archive; })
      .def_prop_ro("arrays", [](h2o::Archive& archive) { return archive.arrays(); })
      .def(
          "rows",
          [](h2o::Archive& archive, int begin, int end) {
            auto [keys, values, novelty] = archive.tokens(begin, end);
            return std::tuple{keys, values, novelty};
          },
          "begin"_a, "end"_a)
      .def_prop_ro(
          "mark",
          [](const h2o::Archive& archive) { return optional_mark(archive.files().mark()); })
      .def_prop_ro(
          "failure",
          [](const h2o::Archive& archive) { return optional_failure(archive.failure()); })
      .def(
          "flush",
          [](const h2o::Archive& archive) {
            nb::gil_scoped_release release;
            return archive.files().flush();
          })
      .def_prop_ro(
          "bits", [](const h2o::Archive& archive) { return archive.recall().archive_bits; })
      .def_prop_ro("length", &h2o::Archive::length)
      .def_prop_ro("first", &h2o::Archive::first)
      .def_prop_ro("nbytes", &h2o::Archive::nbytes)
      .def_prop_ro(
          "dtype", [](const h2o::Archive& archive) { return archive.format().dtype; })
      .def_prop_ro("group_size", [](const h2o::Archive& archive) {
        return archive.format().group_size;
      });

  m.def(
      "restored_archive",
      [](const std::vector<mx::array>& arrays, nb::handle recall, int bits, int group_size,
         const mx::Dtype& dtype, int key_dim, int first, int length) {
        return h2o::Archive::restored(
            arrays, settings_of(recall), {bits, bits, group_size, dtype}, key_dim, first,
            length);
      },
      "arrays"_a, "recall"_a, nb::kw_only(), "bits"_a, "group_size"_a, "dtype"_a,
      "key_dim"_a, "first"_a, "length"_a);

  m.def(
      "recall",
      [](const mx::array& queries, const mx::array& keys, const RowsTuple& rows,
         const LedgerTuple& ledger, h2o::Archive& archive, int offset,
         const h2o::CacheConfig& config, float scale, const MaskArgument& mask,
         const std::optional<mx::array>& sinks, const std::optional<mx::array>& also,
         bool fallback) {
        return to_tuple(
            h2o::recall(
                {queries, keys, scale, mask_of(mask), sinks},
                {to_rows(rows), to_ledger(ledger), archive, offset}, also, config,
                fallback));
      },
      "queries"_a, "keys"_a, "rows"_a, "ledger"_a, "archive"_a, nb::kw_only(), "offset"_a,
      "config"_a, "scale"_a, "mask"_a = nb::none(), "sinks"_a = nb::none(),
      "also"_a = nb::none(), "fallback"_a = false,
      nb::call_guard<nb::gil_scoped_release>());

  m.def(
      "read_everything",
      [](const mx::array& queries, const mx::array& keys, const mx::array& values,
         const RowsTuple& rows, const LedgerTuple& ledger, h2o::Archive& archive,
         int offset, const h2o::CacheConfig& config, float scale, const MaskArgument& mask,
         const std::optional<mx::array>& sinks)
          -> std::optional<std::tuple<mx::array, mx::array>> {
        auto reading = h2o::read_everything(
            {queries, keys, scale, mask_of(mask), sinks}, values,
            {to_rows(rows), to_ledger(ledger), archive, offset}, config);
        if (!reading) {
          return std::nullopt;
        }
        return std::tuple{reading->out, reading->strongest};
      },
      "queries"_a, "keys"_a, "values"_a, "rows"_a, "ledger"_a, "archive"_a, nb::kw_only(),
      "offset"_a, "config"_a, "scale"_a, "mask"_a = nb::none(), "sinks"_a = nb::none(),
      nb::call_guard<nb::gil_scoped_release>());

  m.def(
      "chosen_positions",
      [](const mx::array& asked_for, int first, int seen, int rows,
         const h2o::CacheConfig& config, nb::handle recall) {
        return h2o::chosen_positions(
            asked_for, first, seen, rows, config, settings_of(recall));
      },
      "asked_for"_a, nb::kw_only(), "first"_a, "seen"_a, "rows"_a, "config"_a, "recall"_a);

  m.def(
      "bring_back",
      [](const mx::array& positions, const RowsTuple& rows, const LedgerTuple& ledger,
         h2o::Archive& archive, int offset, const h2o::CacheConfig& config) {
        return to_tuple(
            h2o::bring_back(
                positions, {to_rows(rows), to_ledger(ledger), archive, offset}, config));
      },
      "positions"_a, "rows"_a, "ledger"_a, "archive"_a, nb::kw_only(), "offset"_a,
      "config"_a, nb::call_guard<nb::gil_scoped_release>());
}

} // namespace h2o::python
