#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "functions.h"

/// How Python passes what the functions take, as named tuples of h2o_py.
namespace h2o::python {

namespace mx = mlx::core;

/// An array or None in a tuple. With std::optional<mx::array> there, whose constructor takes
/// whatever an array can be made of, GCC 16's library asks in a circle what a tuple can be
/// made of.
struct ArrayOrNone {
  std::optional<mx::array> array;
};

/// None, "causal" or an array, as mlx_lm hands masks around.
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

using LedgerTuple =
    std::tuple<mx::array, mx::array, mx::array, mx::array, mx::array, ArrayOrNone>;

inline LedgerTuple to_tuple(const h2o::Ledger& ledger) {
  return {ledger.scores,  ledger.positions, ledger.novelty,
          ledger.key_sum, ledger.victim,    {ledger.held}};
}

inline h2o::Ledger to_ledger(const LedgerTuple& t) {
  return {std::get<0>(t), std::get<1>(t), std::get<2>(t),
          std::get<3>(t), std::get<4>(t), std::get<5>(t).array};
}

/// The pool and, if there is one, the ring.
using RowsTuple = std::tuple<mx::array, ArrayOrNone>;

inline RowsTuple to_tuple(const h2o::Rows& rows) {
  return {rows.pool, {rows.ring}};
}

inline h2o::Rows to_rows(const RowsTuple& t) {
  return {std::get<0>(t), std::get<1>(t).array};
}

} // namespace h2o::python

/// An ArrayOrNone is to Python what the optional in it is.
template <>
struct nanobind::detail::type_caster<h2o::python::ArrayOrNone> {
  using Caster = make_caster<std::optional<mlx::core::array>>;

  NB_TYPE_CASTER(h2o::python::ArrayOrNone, Caster::Name)

  bool from_python(handle source, auto flags, cleanup_list* cleanup) noexcept {
    Caster caster;
    if (!caster.from_python(source, flags, cleanup)) {
      return false;
    }
    value.array = std::move(caster.value);
    return true;
  }

  static handle from_cpp(
      const h2o::python::ArrayOrNone& held,
      rv_policy policy,
      cleanup_list* cleanup) noexcept {
    return Caster::from_cpp(held.array, policy, cleanup);
  }
};
