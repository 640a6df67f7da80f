#include "mlx/c/h2o_policy.h"

#include "policy_of.h"

namespace h2o::c {

PolicyHandle& handle_of(mlx_h2o_policy policy) {
  return *static_cast<PolicyHandle*>(policy.ctx);
}

constexpr std::string_view of_recall = "recall.";

/// Settings are of recall where their names begin so; the rest of the name follows.
std::pair<bool, std::string> split(const char* name) {
  const std::string_view whole = name;
  const bool recalls = whole.substr(0, of_recall.size()) == of_recall;
  return {recalls, std::string(recalls ? whole.substr(of_recall.size()) : whole)};
}

int set(mlx_h2o_policy policy, const char* name, Value value) {
  auto& handle = handle_of(policy);
  const auto [recalls, key] = split(name);
  if (recalls && !handle.recall) {
    handle.recall.emplace();
  }
  (recalls ? *handle.recall : handle.policy)[key] = std::move(value);
  return 0;
}

/// A setting that is complete; null if there is none of such a type.
template <class Held>
const Held* get(mlx_h2o_policy policy, const char* name) {
  const auto& completed = handle_of(policy).completed;
  const auto [recalls, key] = split(name);
  const Values* values = nullptr;
  if (completed) {
    values = !recalls            ? &completed->policy
             : completed->recall ? &*completed->recall
                                 : nullptr;
  }
  const auto found = values ? values->find(key) : Values::const_iterator();
  return values && found != values->end() ? std::get_if<Held>(&found->second) : nullptr;
}

/// A value of a problem; null if there is none of such a type.
template <class Held>
const Held* get(mlx_h2o_policy policy, size_t index, const char* name) {
  const auto& problems = handle_of(policy).problems;
  if (index >= problems.size()) {
    return nullptr;
  }
  const auto& values = problems[index].values;
  const auto found = values.find(name);
  return found == values.end() ? nullptr : std::get_if<Held>(&found->second);
}

/// Ranges of their bounds, where a setting is known to be of ranges.
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
  res->ctx = new PolicyHandle();
  return 0;
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
  return set(policy, name, std::string(value));
}

extern "C" int mlx_h2o_policy_set_integers(
    mlx_h2o_policy policy, const char* name, const int64_t* values, size_t count) {
  return set(policy, name, integers(name, values, count));
}

extern "C" int mlx_h2o_policy_complete(mlx_h2o_policy policy, const char* named) {
  auto& handle = handle_of(policy);
  handle.completed.reset();
  handle.problems.clear();
  try {
    handle.completed = complete(handle, named);
    handle.problems = handle.completed->warnings;
    return 0;
  } catch (const h2o::PolicyError& error) {
    handle.problems = {error.problem};
  } catch (const std::exception& error) {
    handle.problems = {{error.what(), {}}};
  }
  return 1;
}

extern "C" int64_t mlx_h2o_policy_integer(mlx_h2o_policy policy, const char* name) {
  const auto* value = get<int64_t>(policy, name);
  return value ? *value : 0;
}

extern "C" double mlx_h2o_policy_number(mlx_h2o_policy policy, const char* name) {
  const auto* value = get<double>(policy, name);
  return value ? *value : double(mlx_h2o_policy_integer(policy, name));
}

extern "C" const char* mlx_h2o_policy_text(mlx_h2o_policy policy, const char* name) {
  const auto* value = get<std::string>(policy, name);
  return value ? value->c_str() : "";
}

extern "C" int mlx_h2o_policy_recall_rows(mlx_h2o_policy policy) {
  const auto& completed = handle_of(policy).completed;
  return completed ? completed->recall_rows : 0;
}

extern "C" size_t mlx_h2o_policy_problems(mlx_h2o_policy policy) {
  return handle_of(policy).problems.size();
}

extern "C" const char* mlx_h2o_policy_problem_code(mlx_h2o_policy policy, size_t index) {
  const auto& problems = handle_of(policy).problems;
  return index < problems.size() ? problems[index].code.c_str() : "";
}

extern "C" int64_t mlx_h2o_policy_problem_integer(
    mlx_h2o_policy policy, size_t index, const char* name) {
  const auto* value = get<int64_t>(policy, index, name);
  return value ? *value : 0;
}

extern "C" const char* mlx_h2o_policy_problem_text(
    mlx_h2o_policy policy, size_t index, const char* name) {
  const auto* value = get<std::string>(policy, index, name);
  return value ? value->c_str() : "";
}
