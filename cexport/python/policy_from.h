#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "policy_rules.h"

/// Conversions of settings from Python.
namespace h2o::python {

inline bool is_integer(nanobind::handle object) {
  return PyLong_Check(object.ptr()) && !PyBool_Check(object.ptr());
}

/// Converts an integer. An integer that does not fit into 64 bits becomes the nearest 64-bit
/// integer, which no setting allows.
inline int64_t integer_from(nanobind::handle object) {
  int overflow = 0;
  const int64_t number = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  return overflow == 0  ? number
         : overflow > 0 ? std::numeric_limits<int64_t>::max()
                        : std::numeric_limits<int64_t>::min();
}

/// Converts a tuple or list of integers; none for anything else.
inline std::optional<std::vector<int64_t>> integers_from(nanobind::handle object) {
  if (!PyTuple_Check(object.ptr()) && !PyList_Check(object.ptr())) {
    return std::nullopt;
  }
  std::vector<int64_t> numbers;
  for (nanobind::handle item : object) {
    if (!is_integer(item)) {
      return std::nullopt;
    }
    numbers.push_back(integer_from(item));
  }
  return numbers;
}

inline std::optional<Ranges> ranges_from(nanobind::handle object) {
  if (!PyTuple_Check(object.ptr()) && !PyList_Check(object.ptr())) {
    return std::nullopt;
  }
  Ranges ranges;
  for (nanobind::handle item : object) {
    auto bounds = integers_from(item);
    if (!bounds || bounds->size() != 2) {
      return std::nullopt;
    }
    ranges.emplace_back(bounds->front(), bounds->back());
  }
  return ranges;
}

/// Converts the value of a setting of this kind.
inline Value value_from(nanobind::handle object, Kind kind) {
  if (kind == Kind::ranges) {
    if (auto ranges = ranges_from(object)) {
      return *ranges;
    }
  } else if (object.is_none()) {
    return {};
  } else if (kind == Kind::layers) {
    if (auto layers = integers_from(object)) {
      return *layers;
    }
  } else if (is_integer(object)) {
    return integer_from(object);
  } else if (PyUnicode_Check(object.ptr())) {
    return nanobind::cast<std::string>(object);
  }
  return Unfit{nanobind::cast<std::string>(nanobind::repr(object))};
}

/// Collects the settings that `get` returns by name; skips those for which it returns no
/// object.
template <class Get>
Values values_from(const std::vector<Field>& fields, Get get) {
  Values values;
  for (const auto& field : fields) {
    if (nanobind::object object = get(field.name); object.is_valid()) {
      values.emplace(field.name, value_from(object, field.kind));
    }
  }
  return values;
}

/// Converts a value to Python; Unfit to None.
inline nanobind::object object_of(const Value& value) {
  return std::visit(
      [](const auto& content) -> nanobind::object {
        using Held = std::decay_t<decltype(content)>;
        if constexpr (std::is_same_v<Held, std::monostate> || std::is_same_v<Held, Unfit>) {
          return nanobind::none();
        } else {
          return nanobind::cast(content);
        }
      },
      value);
}

inline nanobind::dict dict_of(const Values& values) {
  nanobind::dict settings;
  for (const auto& [name, value] : values) {
    settings[name.c_str()] = object_of(value);
  }
  return settings;
}

/// Converts an object with the attributes of Python's H2OConfig to a policy.
inline Policy policy_from(nanobind::handle settings) {
  auto values = values_from(policy_fields, [&](const char* name) {
    return nanobind::object(settings.attr(name));
  });
  return policy_of(complete(std::move(values)).policy);
}

/// Converts an object with the attributes of Python's H2ORecall to settings; None gives
/// none.
inline std::optional<Recall> recall_from(nanobind::handle settings) {
  if (settings.is_none()) {
    return std::nullopt;
  }
  return recall_of(complete_recall(values_from(recall_fields, [&](const char* name) {
    return nanobind::object(settings.attr(name));
  })));
}

} // namespace h2o::python
