#pragma once

#include "mlx/c/h2o_policy.h"
#include "policy_rules.h"

namespace h2o::c {

/// What is behind an mlx_h2o_policy.
struct PolicyHandle {
  Values policy;
  std::optional<Values> recall;
  std::optional<Completed> completed;
  std::vector<Problem> problems;
};

inline const Completed& completed_of(const mlx_h2o_policy& policy) {
  const auto* handle = static_cast<const PolicyHandle*>(policy.ctx);
  if (!handle || !handle->completed) {
    throw std::invalid_argument("a policy must be completed before a cache is made of it");
  }
  return *handle->completed;
}

} // namespace h2o::c

namespace h2o {

/// The policy of a C handle.
inline Policy policy_of(const mlx_h2o_policy& policy) {
  return policy_of(c::completed_of(policy).policy);
}

/// The settings of recall of a C handle, if it has some.
inline std::optional<Recall> recall_of(const mlx_h2o_policy& policy) {
  const auto& recall = c::completed_of(policy).recall;
  return recall ? std::optional(recall_of(*recall)) : std::nullopt;
}

} // namespace h2o
