// The module h2o_py._policy: the rules of a policy, which need no MLX.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "policy_from.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using namespace h2o;
using namespace h2o::python;

nb::tuple tuple_of(const Problem& problem) {
  return nb::make_tuple(problem.code, problem.values);
}

Values given(const std::vector<Field>& fields, nb::dict settings) {
  return values_from(fields, [&](const char* name) {
    return settings.contains(name) ? nb::object(settings[name]) : nb::object();
  });
}

/// The settings of `after` that are missing or none in `before`.
nb::dict added(const Values& before, const Values& after) {
  nb::dict settings;
  for (const auto& [name, value] : after) {
    const auto entry = before.find(name);
    const bool was_given =
        entry != before.end() && !std::holds_alternative<std::monostate>(entry->second);
    if (!was_given && !std::holds_alternative<std::monostate>(value)) {
      settings[name.c_str()] = object_of(value);
    }
  }
  return settings;
}

/// Converts the core's PolicyError to Python's, with its code and values.
void translate(const std::exception_ptr& thrown, void* type) {
  try {
    std::rethrow_exception(thrown);
  } catch (const PolicyError& error) {
    PyErr_SetObject(static_cast<PyObject*>(type), tuple_of(error.problem).ptr());
  }
}

} // namespace

NB_MODULE(_policy, m) {
  nb::object error = nb::steal(
      PyErr_NewException("h2o_py._policy.PolicyError", PyExc_ValueError, nullptr));
  m.attr("PolicyError") = error;
  nb::register_exception_translator(translate, error.ptr());

  m.def(
      "complete",
      [](nb::dict policy, std::optional<nb::dict> recall) {
        const Values values = given(policy_fields, policy);
        auto of_recall =
            recall ? std::optional(given(recall_fields, *recall)) : std::nullopt;
        const Completed completed = complete(values, std::move(of_recall));
        nb::list warnings;
        for (const auto& warning : completed.warnings) {
          warnings.append(tuple_of(warning));
        }
        return nb::make_tuple(added(values, completed.policy), warnings);
      },
      "policy"_a, "recall"_a.none() = nb::none());

  m.def(
      "check_recall",
      [](nb::dict recall) { complete_recall(given(recall_fields, recall)); }, "recall"_a);

  m.def(
      "check",
      [](const std::string& name, nb::handle value) {
        for (const auto* fields : {&policy_fields, &recall_fields}) {
          for (const auto& field : *fields) {
            if (name == field.name) {
              check(field, value_from(value, field.kind));
            }
          }
        }
      },
      "name"_a, "value"_a.none());
}
