#pragma once

#include <map>
#include <stdexcept>

#include "policy_fields.h"

/// What follows from the settings of a policy, and which of them cannot be used. All languages
/// ask here, once, when a configuration is made.
namespace h2o {

/// A value of no type that any setting has.
struct Unfit {
  std::string text; ///< as its language writes it
};

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

/// What a setting is given as; none is std::monostate.
using Value = std::variant<
    std::monostate,
    int64_t,
    double,
    std::string,
    Ranges,
    std::vector<int64_t>,
    Unfit>;

/// Settings by their names; one that is left out has its default.
using Values = std::map<std::string, Value>;

/// An error or a warning of interface/errors.toml, and what belongs to it. What `out_of_range`
/// has in `allowed` is a key of errors.toml too, whose own values (`least`, `most`, `choices`)
/// stand beside it.
struct Problem {
  std::string code;
  std::map<std::string, std::variant<int64_t, std::string>> values;
};

/// Settings that cannot be used. `what` is for developers; languages word the problem.
class PolicyError : public std::invalid_argument {
 public:
  explicit PolicyError(Problem problem);

  const Problem problem;
};

/// Settings with all defaults filled in, which can be used.
struct Completed {
  Values policy;
  std::optional<Values> recall;
  int recall_rows = 0; ///< per KV head that a recall chooses (M); 0 without recall or room
  std::vector<Problem> warnings;
};

/// Fills in what is left out and checks all of it.
///
/// Throws PolicyError for the first value that is not allowed, or for settings that leave no
/// row for a recent token or none to evict.
Completed complete(Values policy, std::optional<Values> recall = std::nullopt);

/// The same for the settings of recall alone. What may be none stays so.
Values complete_recall(Values recall);

/// What is given, with the defaults of a named policy for what is left out.
Values with_defaults_of(const std::string& policy, Values given);

/// Throws PolicyError where a setting does not allow a value; `prefix` stands before its name.
void check(const Field& field, const Value& value, const std::string& prefix = "");

/// The structures that the core computes with, of values that `complete` gave.
Policy policy_of(const Values& policy);
Recall recall_of(const Values& recall);

/// Rows per KV head that eviction can spare for recall: all that are not protected, but one.
int most_recall_rows(const Policy& policy);

/// Rows per KV head that a recall chooses (M): those asked for, as far as eviction can spare
/// them; 0 if it can spare none.
int recall_rows(const Policy& policy, const Recall& recall);

} // namespace h2o
