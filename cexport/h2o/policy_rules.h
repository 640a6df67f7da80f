#pragma once

#include <map>
#include <stdexcept>

#include "policy_fields.h"

/// The rules of the settings of a policy: defaults that depend on other settings, and
/// errors. All languages call them once, when they make a configuration.
namespace h2o {

/// A value of a type that no setting accepts.
struct Unfit {
  std::string text; ///< the value in the notation of the caller's language
};

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

/// A value of a setting as the caller passes it; std::monostate is none.
using Value =
    std::variant<std::monostate, int64_t, std::string, Ranges, std::vector<int64_t>, Unfit>;

/// Settings by name; a missing one gets its default.
using Values = std::map<std::string, Value>;

/// An error or a warning of interface/errors.toml, with the values for its text. In
/// `out_of_range`, the value `allowed` is the key of another text in errors.toml; `values`
/// also has the values for that text (`least`, `most`, `choices`).
struct Problem {
  std::string code;
  std::map<std::string, std::variant<int64_t, std::string>> values;
};

/// A problem that is thrown. `what` is for developers; each language turns the problem into a
/// message.
class Refusal : public std::runtime_error {
 public:
  explicit Refusal(Problem problem);

  const Problem problem;
};

/// Settings that cannot be used.
class PolicyError : public Refusal {
  using Refusal::Refusal;
};

/// Valid settings with all defaults filled in.
struct Completed {
  Values policy;
  std::optional<Values> recall;
  std::vector<Problem> warnings;
};

/// Fills in missing settings and checks all of them.
///
/// Throws PolicyError for the first value that is not allowed, or for settings that leave no
/// row for a recent token or none to evict.
Completed complete(Values policy, std::optional<Values> recall = std::nullopt);

/// Does the same for the settings of recall alone. A setting that may be none stays none.
Values complete_recall(Values recall);

/// Throws PolicyError if a setting does not allow a value; `prefix` precedes its name.
void check(const Field& field, const Value& value, const std::string& prefix = "");

/// Converts completed settings to the structures that the core uses.
Policy policy_of(const Values& policy);
Recall recall_of(const Values& recall);

/// Converts them back. A setting that is 0 or empty, which it does not allow, is none.
Values values_of(const Policy& policy);
Values values_of(const Recall& recall);

} // namespace h2o
