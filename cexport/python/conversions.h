#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "archive.h"
#include "functions.h"
#include "row_layout.h"

/// Conversions between the functions' arguments and the named tuples of h2o_py.
namespace h2o::python {

namespace mx = mlx::core;

/// A mask as mlx_lm passes it: None, "causal" or an array.
using MaskArgument = std::variant<std::monostate, std::string, mx::array>;

inline h2o::Mask mask_of(const MaskArgument& mask) {
  if (auto mode = std::get_if<std::string>(&mask)) {
    return h2o::make_mask(*mode, std::nullopt);
  }
  if (auto values = std::get_if<mx::array>(&mask)) {
    return h2o::make_mask("", *values);
  }
  return {};
}

using LedgerTuple = std::tuple<mx::array, mx::array, mx::array>;

inline LedgerTuple to_tuple(const h2o::Ledger& ledger) {
  return {ledger.scores, ledger.positions, ledger.victim};
}

inline h2o::Ledger to_ledger(const LedgerTuple& t) {
  return {std::get<0>(t), std::get<1>(t), std::get<2>(t)};
}

/// The pool and, if there is one, the ring.
using RowsList = std::vector<mx::array>;

inline h2o::Rows to_rows(const RowsList& buffers) {
  if (buffers.empty() || buffers.size() > 2) {
    throw std::invalid_argument("Rows are one buffer, or two.");
  }
  return h2o::rows_from(buffers.begin(), buffers.end());
}

/// Adds the functions of functions.h to a Python module. Their public signatures and
/// docstrings are in h2o_py/fast.py.
void bind(nanobind::module_& m);

/// h2o::cache_attend, or another function of the same arguments and result.
using AttendFunction = decltype(&h2o::cache_attend);

/// Adds such a function under a name.
void bind_attend(nanobind::module_& m, const char* name, AttendFunction attend);

/// Adds LayerCache with its archive.
void bind_layer_cache(nanobind::module_& m);

struct ArchiveOf;

/// Adds what only tests call, in tests/cexport/bindings.cpp.
void bind_for_tests(nanobind::module_& m, nanobind::class_<ArchiveOf>& archive);

} // namespace h2o::python
