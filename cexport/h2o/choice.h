#pragma once

#include <vector>

#include "policy_rules.h"

/// Which positions come back, from how much each is asked for.
namespace h2o {

/// Whether every cache of this policy keeps the position, once it has seen so many tokens.
bool is_kept_anyway(const Policy& policy, int position, int seen);

/// The positions asked for most, at most `wanted`, the best first.
///
/// A position counts as much as the largest of itself, the `spread` before it and the `before`
/// after it: what is asked for brings its neighbors along. What is kept anyway neither
/// comes nor brings anything. Those stay out that count 0 or less than `threshold` percent of
/// the largest. Ties go to the lowest position.
///
/// Args:
///   asked_for: of the positions from `first` on; negative where one cannot come.
///   seen: tokens so far.
std::vector<int> choose_positions(
    const std::vector<float>& asked_for,
    int first,
    int seen,
    int wanted,
    const Policy& policy,
    const Recall& recall);

} // namespace h2o
