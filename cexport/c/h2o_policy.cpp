#include "handles.h"

namespace h2o::c {

constexpr std::string_view of_recall = "recall.";

/// Returns whether a name is the name of a setting of recall, and the name without "recall.".
std::pair<bool, std::string> split(const char* name) {
  const std::string_view whole = text(name);
  const bool recalls = whole.substr(0, of_recall.size()) == of_recall;
  return {recalls, std::string(recalls ? whole.substr(of_recall.size()) : whole)};
}

int set(mlx_h2o_policy policy, const char* name, Value value) {
  return guarded([&] {
    auto& handle = handle_of(policy);
    const auto [recalls, key] = split(name);
    if (recalls && !handle.recall) {
      handle.recall.emplace();
    }
    (recalls ? *handle.recall : handle.policy)[key] = std::move(value);
  });
}

/// Null if there is no such setting.
template <class Held>
const Held* value_in(const std::map<std::string, Held>& values, const std::string& name) {
  const auto entry = values.find(name);
  return entry == values.end() ? nullptr : &entry->second;
}

/// A setting of a complete policy; null if there is no such setting, or after an error.
const Value* setting(mlx_h2o_policy policy, const char* name) {
  const Value* value = nullptr;
  guarded([&] {
    const auto& completed = handle_of(policy).completed;
    const auto [recalls, key] = split(name);
    if (completed && !recalls) {
      value = value_in(completed->policy, key);
    } else if (completed && completed->recall) {
      value = value_in(*completed->recall, key);
    }
  });
  return value;
}

/// A problem by its index; null beyond the last one, or after an error.
const Problem* problem(mlx_h2o_policy policy, size_t index) {
  const Problem* problem = nullptr;
  guarded([&] {
    const auto& problems = handle_of(policy).problems;
    problem = index < problems.size() ? &problems[index] : nullptr;
  });
  return problem;
}

/// A value of a problem by name; null if there is no such value, or after an error.
const decltype(Problem::values)::mapped_type* problem_value(
    mlx_h2o_policy policy, size_t index, const char* name) {
  const auto* of = problem(policy, index);
  return of ? value_in(of->values, text(name)) : nullptr;
}

template <class Held>
int64_t integer_of(const Held* value) {
  const auto* integer = value ? std::get_if<int64_t>(value) : nullptr;
  return integer ? *integer : 0;
}

template <class Held>
const char* text_of(const Held* value) {
  const auto* text = value ? std::get_if<std::string>(value) : nullptr;
  return text ? text->c_str() : "";
}

/// Converts a list of bounds to ranges if the setting holds ranges.
Value integers(const std::string& name, const int64_t* values, size_t count) {
  for (const auto& field : policy_fields) {
    if (name == field.name && field.kind == Kind::ranges && count % 2 == 0) {
      Ranges ranges;
      for (size_t i = 0; i < count; i += 2) {
        ranges.emplace_back(values[i], values[i + 1]);
      }
      return ranges;
    }
  }
  return std::vector<int64_t>(values, values + count);
}

Completed complete(const PolicyHandle& handle, const char* named) {
  if (handle.policy.empty() && handle.recall) {
    Completed completed;
    completed.recall = complete_recall(*handle.recall);
    return completed;
  }
  Values policy = handle.policy;
  return h2o::complete(
      named ? with_defaults_of(named, std::move(policy)) : std::move(policy),
      handle.recall);
}

} // namespace h2o::c

using namespace h2o::c;

extern "C" int mlx_h2o_policy_new(mlx_h2o_policy* res) {
  return guarded([&] { res->ctx = new PolicyHandle(); });
}

extern "C" int mlx_h2o_policy_free(mlx_h2o_policy policy) {
  delete static_cast<PolicyHandle*>(policy.ctx);
  return 0;
}

extern "C" int mlx_h2o_policy_set_integer(
    mlx_h2o_policy policy, const char* name, int64_t value) {
  return set(policy, name, value);
}

extern "C" int mlx_h2o_policy_set_number(
    mlx_h2o_policy policy, const char* name, double value) {
  return set(policy, name, value);
}

extern "C" int mlx_h2o_policy_set_text(
    mlx_h2o_policy policy, const char* name, const char* value) {
  return set(policy, name, std::string(text(value)));
}

extern "C" int mlx_h2o_policy_set_integers(
    mlx_h2o_policy policy, const char* name, const int64_t* values, size_t count) {
  return set(policy, name, integers(text(name), values, values ? count : 0));
}

extern "C" int mlx_h2o_policy_complete(mlx_h2o_policy policy, const char* named) {
  bool is_complete = false;
  guarded([&] {
    auto& handle = handle_of(policy);
    handle.completed.reset();
    try {
      handle.completed = complete(handle, named);
      handle.problems = handle.completed->warnings;
      is_complete = true;
    } catch (const h2o::PolicyError& error) {
      handle.problems = {error.problem};
    } catch (const std::exception& error) {
      handle.problems = {{error.what(), {}}};
    }
  });
  return is_complete ? 0 : 1;
}

extern "C" int64_t mlx_h2o_policy_integer(mlx_h2o_policy policy, const char* name) {
  return integer_of(setting(policy, name));
}

extern "C" double mlx_h2o_policy_number(mlx_h2o_policy policy, const char* name) {
  const auto* value = setting(policy, name);
  const auto* number = value ? std::get_if<double>(value) : nullptr;
  return number ? *number : double(integer_of(value));
}

extern "C" const char* mlx_h2o_policy_text(mlx_h2o_policy policy, const char* name) {
  return text_of(setting(policy, name));
}

extern "C" int mlx_h2o_policy_recall_rows(mlx_h2o_policy policy) {
  int rows = 0;
  guarded([&] {
    const auto& completed = handle_of(policy).completed;
    rows = completed ? completed->recall_rows : 0;
  });
  return rows;
}

extern "C" size_t mlx_h2o_policy_problems(mlx_h2o_policy policy) {
  size_t count = 0;
  guarded([&] { count = handle_of(policy).problems.size(); });
  return count;
}

extern "C" const char* mlx_h2o_policy_problem_code(mlx_h2o_policy policy, size_t index) {
  const auto* of = problem(policy, index);
  return of ? of->code.c_str() : "";
}

extern "C" int64_t mlx_h2o_policy_problem_integer(
    mlx_h2o_policy policy, size_t index, const char* name) {
  return integer_of(problem_value(policy, index, name));
}

extern "C" const char* mlx_h2o_policy_problem_text(
    mlx_h2o_policy policy, size_t index, const char* name) {
  return text_of(problem_value(policy, index, name));
}
