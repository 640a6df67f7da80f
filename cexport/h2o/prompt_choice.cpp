#include "prompt_choice.h"

#include <algorithm>

#include "fallback_ops.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"

namespace h2o {

void Ballot::add(
    int layer,
    const mx::array& strongest,
    int first,
    const Policy& policy,
    const Recall& recall,
    mx::StreamOrDevice s) {
  auto votes = mx::sum(mx::square(strongest, s), 1, false, s);
  if (votes_) {
    const int latest = std::max(first, first_);
    auto from_latest = [&](const mx::array& a, int begin) {
      return fallback::take_rows(a, 1, latest - begin, a.shape(1), s);
    };
    votes_ = mx::add(from_latest(*votes_, first_), from_latest(votes, first), s);
    first_ = latest;
  } else {
    first_ = first;
    votes_ = votes;
  }
  voters_.insert_or_assign(layer, Voter{policy, recall});
  mx::async_eval(*votes_);
}

const mx::array& Ballot::chosen(mx::StreamOrDevice s) {
  if (!chosen_) {
    int rows = 0;
    const Voter* with_least_recent = nullptr; // which keeps the fewest positions anyway
    for (const auto& [layer, voter] : voters_) {
      rows = std::max(rows, recall_rows(voter.policy, voter.recall));
      if (!with_least_recent ||
          voter.policy.recent_budget < with_least_recent->policy.recent_budget) {
        with_least_recent = &voter;
      }
    }
    chosen_ = chosen_positions(
        votes_.value(), first_, seen_, rows, with_least_recent->policy,
        with_least_recent->recall, s);
    votes_.reset();
  }
  return *chosen_;
}

std::shared_ptr<Ballot> PromptChoice::ballot(int layer, int seen) {
  if (!ballot_ || !ballot_->takes(layer, seen)) {
    ballot_ = std::make_shared<Ballot>(seen);
  }
  return ballot_;
}

} // namespace h2o
