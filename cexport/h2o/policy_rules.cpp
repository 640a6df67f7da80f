#include "policy_rules.h"

#include <algorithm>
#include <sstream>
#include <type_traits>

namespace h2o {

namespace policy_rules {

struct Text {
  std::ostringstream out;

  void operator()(std::monostate) {
    out << "none";
  }
  void operator()(const Unfit& value) {
    out << value.text;
  }
  void operator()(const Ranges& ranges) {
    const char* between = "";
    for (auto [begin, end] : ranges) {
      out << std::exchange(between, ", ") << "(" << begin << ", " << end << ")";
    }
  }
  void operator()(const std::vector<int64_t>& numbers) {
    const char* between = "";
    for (int64_t number : numbers) {
      out << std::exchange(between, ", ") << number;
    }
  }
  template <class Plain>
  void operator()(const Plain& value) {
    out << value;
  }
};

template <class Variant>
std::string text(const Variant& value) {
  Text text;
  std::visit(text, value);
  return text.out.str();
}

std::string described(const Problem& problem) {
  std::string words = "H2O cache: " + problem.code;
  const char* between = ": ";
  for (const auto& [name, value] : problem.values) {
    words += std::exchange(between, ", ") + name + " " + text(value);
  }
  return words;
}

bool is_none(const Value& value) {
  return std::holds_alternative<std::monostate>(value);
}

Value value_of(const Constant& constant) {
  return std::visit(
      [](auto content) -> Value {
        if constexpr (std::is_same_v<decltype(content), const char*>) {
          return std::string(content);
        } else {
          return content;
        }
      },
      constant);
}

/// Refuses unknown settings.
void check_names(
    const Values& values, const std::vector<Field>& fields, const std::string& prefix) {
  std::string names;
  for (const auto& field : fields) {
    names += names.empty() ? field.name : std::string(", ") + field.name;
  }
  for (const auto& [name, value] : values) {
    const bool is_known = std::any_of(fields.begin(), fields.end(), [&](const auto& field) {
      return name == field.name;
    });
    if (!is_known) {
      throw PolicyError({"unknown_field", {{"field", prefix + name}, {"known", names}}});
    }
  }
}

/// Fills in missing settings whose defaults do not depend on others.
void add_defaults(Values& values, const std::vector<Field>& fields) {
  for (const auto& field : fields) {
    values.try_emplace(
        field.name,
        field.kind == Kind::ranges ? Value(Ranges()) : value_of(field.default_value));
  }
}

[[noreturn]] void refuse_value(
    const std::string& name,
    const Value& value,
    const char* allowed,
    Problem problem = {}) {
  problem.code = "out_of_range";
  problem.values.insert({{"field", name}, {"value", text(value)}, {"allowed", allowed}});
  throw PolicyError(std::move(problem));
}

void check_integer(const Field& field, const Value& value, const std::string& name) {
  const auto* number = std::get_if<int64_t>(&value);
  if (!number) {
    refuse_value(name, value, "integer");
  }
  if (const auto& choices = field.choices; !choices.empty()) {
    if (std::count(choices.begin(), choices.end(), *number) == 0) {
      refuse_value(name, value, "choices", {"", {{"choices", text(Value(choices))}}});
    }
    return;
  }
  constexpr int64_t most_bytes = (int64_t(1) << 53) - 1; // that a JSON number holds exactly
  const int64_t most = field.kind == Kind::bytes ? most_bytes : largest_integer;
  if (*number < field.least || *number > most) {
    refuse_value(name, value, "between", {"", {{"least", field.least}, {"most", most}}});
  }
}

void check_score(const Value& value, const std::string& name) {
  const auto* score = std::get_if<std::string>(&value);
  std::string names;
  for (const char* known_name : score_names) {
    if (score && *score == known_name) {
      return;
    }
    names += names.empty() ? known_name : std::string(", ") + known_name;
  }
  throw PolicyError(
      {"unknown_choice", {{"field", name}, {"value", text(value)}, {"known", names}}});
}

/// Counts the positions in any of the ranges or below `first`, each once.
int64_t covered(std::vector<std::pair<int, int>> ranges, int64_t first) {
  std::sort(ranges.begin(), ranges.end());
  int64_t count = first;
  int64_t reached = first;
  for (auto [begin, end] : ranges) {
    count += std::max<int64_t>(0, end - std::max<int64_t>(begin, reached));
    reached = std::max<int64_t>(reached, end);
  }
  return count;
}

/// Counts the positions that are never evicted, without the recent ones.
int64_t protected_positions(const Policy& policy) {
  return covered(policy.pinned, policy.sink_size);
}

int64_t integer(const Values& values, const char* name) {
  return std::get<int64_t>(values.at(name));
}

/// The default of a setting that depends on earlier ones. Throws PolicyError if no row is
/// left for a recent token. `has_heavy` says whether heavy_budget was set.
Value derived(const std::string& name, const Values& values, bool has_heavy) {
  if (name == "heavy_budget") {
    return integer(values, "max_size") / 2;
  }
  if (name == "recent_budget") {
    const int64_t max_size = integer(values, "max_size");
    const int64_t sink_size = integer(values, "sink_size");
    const int64_t heavy_budget = integer(values, "heavy_budget");
    const int64_t rest = max_size - sink_size - heavy_budget;
    if (rest < 1) {
      const int64_t smallest = has_heavy ? sink_size + heavy_budget + 1 : 2 * sink_size + 1;
      throw PolicyError(
          {"no_recent_rows",
           {{"max_size", max_size},
            {"sink_size", sink_size},
            {"heavy_budget", heavy_budget},
            {"smallest", std::min(smallest, largest_integer)}}});
    }
    return rest;
  }
  throw std::logic_error("h2o: nothing derives the default of " + name);
}

/// Refuses settings that contradict each other.
void check_together(const Policy& policy) {
  const int64_t max_size = policy.max_size, sink_size = policy.sink_size;
  const int64_t heavy_budget = policy.heavy_budget, recent_budget = policy.recent_budget;
  const int64_t total = sink_size + heavy_budget + recent_budget;
  if (total > max_size) {
    throw PolicyError(
        {"budgets_exceed_max_size",
         {{"sink_size", sink_size},
          {"heavy_budget", heavy_budget},
          {"recent_budget", recent_budget},
          {"total", total},
          {"max_size", max_size}}});
  }
  const int64_t apart = protected_positions(policy);
  const int64_t not_evicted = apart + recent_budget;
  if (not_evicted >= max_size) {
    // Enough rows for the default recent budgets of all policies, which grow with the
    // rows.
    const int64_t least = std::max(not_evicted + 1, 2 * (apart - sink_size + 1));
    throw PolicyError(
        {"nothing_to_evict",
         {{"max_size", max_size}, {"held", not_evicted}, {"needed", least}}});
  }
}

void assign(const Value& value, int& member) {
  const auto* number = std::get_if<int64_t>(&value);
  member = number ? int(*number) : 0;
}

void assign(const Value& value, int64_t& member) {
  member = std::get<int64_t>(value);
}

void assign(const Value& value, Score& member) {
  const auto& name = std::get<std::string>(value);
  member =
      Score(std::find(std::begin(score_names), std::end(score_names), name) - score_names);
}

void assign(const Value& value, std::vector<std::pair<int, int>>& member) {
  const auto& ranges = std::get<Ranges>(value);
  member.assign(ranges.begin(), ranges.end());
}

void assign(const Value& value, std::string& member) {
  const auto* words = std::get_if<std::string>(&value);
  member = words ? *words : "";
}

Value value_from(int number) {
  return int64_t(number);
}

Value value_from(int64_t number) {
  return number;
}

Value value_from(Score score) {
  return std::string(score_names[int(score)]);
}

Value value_from(const std::vector<std::pair<int, int>>& ranges) {
  return Ranges(ranges.begin(), ranges.end());
}

Value value_from(const std::string& words) {
  return words;
}

/// Whether the member of a structure says that there is no value.
bool says_none(const Field& field, const Value& value) {
  const auto* number = std::get_if<int64_t>(&value);
  const auto* words = std::get_if<std::string>(&value);
  return (number && *number == 0 && field.least > 0) || (words && words->empty());
}

template <class Settings>
Values values_in(Settings settings, const std::vector<Field>& fields) {
  Values values;
  each_setting(settings, [&](const char* name, const auto& member) {
    values.emplace(name, value_from(member));
  });
  for (const auto& field : fields) {
    Value& value = values[field.name];
    if (says_none(field, value)) {
      value = {};
    }
  }
  return values;
}

template <class Settings>
Settings structure_of(const Values& values) {
  Settings settings{};
  each_setting(
      settings, [&](const char* name, auto& member) { assign(values.at(name), member); });
  return settings;
}

} // namespace policy_rules

Refusal::Refusal(Problem problem)
    : std::runtime_error(policy_rules::described(problem)), problem(std::move(problem)) {
}

void check(const Field& field, const Value& value, const std::string& prefix) {
  using namespace policy_rules;
  const std::string name = prefix + field.name;
  auto in_int32 = [](int64_t number) {
    return 0 <= number && number <= largest_integer;
  };
  switch (field.kind) {
    case Kind::integer:
    case Kind::bytes:
      return check_integer(field, value, name);
    case Kind::score:
      return check_score(value, name);
    case Kind::ranges: {
      const auto* ranges = std::get_if<Ranges>(&value);
      if (!ranges || !std::all_of(ranges->begin(), ranges->end(), [&](auto& range) {
            return in_int32(range.first) && in_int32(range.second) &&
                   range.first < range.second;
          })) {
        refuse_value(name, value, "ranges");
      }
      return;
    }
    case Kind::layers: {
      const auto* layers = std::get_if<std::vector<int64_t>>(&value);
      if (!layers || !std::all_of(layers->begin(), layers->end(), in_int32)) {
        refuse_value(name, value, "layers");
      }
      return;
    }
    case Kind::folder: {
      const auto* folder = std::get_if<std::string>(&value);
      if (!folder || folder->empty()) {
        refuse_value(name, value, "folder");
      }
    }
  }
}

Completed complete(Values policy, std::optional<Values> recall) {
  using namespace policy_rules;
  check_names(policy, policy_fields, "");
  add_defaults(policy, policy_fields);
  const bool has_heavy = !is_none(policy.at("heavy_budget"));
  for (const auto& field : policy_fields) {
    Value& value = policy.at(field.name);
    if (field.is_derived && is_none(value)) {
      value = derived(field.name, policy, has_heavy);
    }
    check(field, value);
  }
  const Policy settings = policy_of(policy);
  check_together(settings);
  Completed completed{std::move(policy), std::nullopt, {}};
  if (settings.recent_budget < safe_recent) {
    completed.warnings.push_back(
        {"short_recent_window",
         {{"recent_budget", int64_t(settings.recent_budget)},
          {"safe_recent", int64_t(safe_recent)}}});
  }
  if (recall) {
    completed.recall = complete_recall(std::move(*recall));
  }
  return completed;
}

Values complete_recall(Values recall) {
  using namespace policy_rules;
  check_names(recall, recall_fields, "recall.");
  add_defaults(recall, recall_fields);
  for (const auto& field : recall_fields) {
    const Value& value = recall.at(field.name);
    const bool may_be_none = std::holds_alternative<std::monostate>(field.default_value);
    if (!(may_be_none && is_none(value))) {
      check(field, value, "recall.");
    }
  }
  return recall;
}

Policy policy_of(const Values& policy) {
  return policy_rules::structure_of<Policy>(policy);
}

Recall recall_of(const Values& recall) {
  return policy_rules::structure_of<Recall>(recall);
}

Values values_of(const Policy& policy) {
  return policy_rules::values_in(policy, policy_fields);
}

Values values_of(const Recall& recall) {
  return policy_rules::values_in(recall, recall_fields);
}

} // namespace h2o
