#include "choice.h"

#include <algorithm>
#include <deque>

#include "mlx/ops.h"
#include "mlx/transforms.h"

namespace h2o {

namespace {

/// The largest of values[n - spread] to values[n + before] for each n.
std::vector<float> largest_around(
    const std::vector<float>& values, int spread, int before) {
  const int count = int(values.size());
  std::vector<float> largest(count);
  std::deque<int> best; // decreasing values, each the largest from there on
  int next = 0;
  for (int n = 0; n < count; ++n) {
    for (const int end = int(std::min<int64_t>(count, int64_t(n) + before + 1)); next < end;
         ++next) {
      while (!best.empty() && values[best.back()] <= values[next]) {
        best.pop_back();
      }
      best.push_back(next);
    }
    while (n - best.front() > spread) {
      best.pop_front();
    }
    largest[n] = values[best.front()];
  }
  return largest;
}

/// Whether every cache of this policy keeps the position after `seen` tokens.
bool is_kept_anyway(const Policy& policy, int position, int seen) {
  if (position < policy.sink_size || position >= seen - policy.recent_budget) {
    return true;
  }
  return std::any_of(policy.pinned.begin(), policy.pinned.end(), [&](const auto& range) {
    return position >= range.first && position < range.second;
  });
}

} // namespace

std::vector<int> choose_positions(
    const std::vector<float>& asked_for,
    int first,
    int seen,
    int most_positions,
    const Policy& policy,
    const Recall& recall) {
  std::vector<float> own = asked_for;
  for (int n = 0; n < int(own.size()); ++n) {
    if (is_kept_anyway(policy, first + n, seen)) {
      own[n] = -1.0f;
    }
  }
  const auto counts = largest_around(own, recall.spread, recall.before);
  const float most = own.empty() ? 0.0f : *std::max_element(own.begin(), own.end());
  const float least = most * (float(recall.threshold) / 100.0f);
  std::vector<int> positions;
  for (int n = 0; n < int(own.size()); ++n) {
    if (own[n] >= 0.0f && counts[n] > 0.0f && counts[n] >= least) {
      positions.push_back(n);
    }
  }
  const size_t count = std::min(positions.size(), size_t(std::max(0, most_positions)));
  std::partial_sort(
      positions.begin(), positions.begin() + count, positions.end(),
      [&](int a, int b) { return counts[a] != counts[b] ? counts[a] > counts[b] : a < b; });
  positions.resize(count);
  for (int& position : positions) {
    position += first;
  }
  return positions;
}

bool Ballot::takes(int layer, int seen) const {
  std::scoped_lock lock(mutex_);
  return seen_ == seen && !voters_.contains(layer) && !chosen_;
}

void Ballot::add(
    int layer,
    const mx::array& strongest,
    int first,
    const Policy& policy,
    const Recall& recall,
    mx::StreamOrDevice s) {
  std::scoped_lock lock(mutex_);
  auto votes = mx::sum(mx::square(strongest, s), 1, false, s);
  if (votes_) {
    // Layers with different numbers of asking tokens vote for different numbers of
    // positions.
    const int end = std::max(first + votes.shape(1), first_ + votes_->shape(1));
    auto up_to_end = [&](const mx::array& a, int begin) {
      const int missing = end - begin - a.shape(1);
      return missing == 0 ? a
                          : mx::pad(a, {1}, {0}, {missing}, mx::array(0.0f), "constant", s);
    };
    votes_ = up_to_end(*votes_, first_);
    votes = up_to_end(votes, first);
    const int latest = std::max(first, first_);
    auto from_latest = [&](const mx::array& a, int begin) {
      return sliced(a, 1, latest - begin, a.shape(1), s);
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

mx::array Ballot::chosen(mx::StreamOrDevice s) {
  std::scoped_lock lock(mutex_);
  if (!chosen_) {
    int rows = 0;
    const Voter* with_least_recent =
        nullptr; // the voter that keeps the fewest positions anyway
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

std::shared_ptr<Ballot> PromptChoice::vote(
    int layer,
    int seen,
    const mx::array& strongest,
    int first,
    const Policy& policy,
    const Recall& recall,
    mx::StreamOrDevice s) {
  std::scoped_lock lock(mutex_);
  if (!ballot_ || !ballot_->takes(layer, seen)) {
    ballot_ = std::make_shared<Ballot>(seen);
  }
  ballot_->add(layer, strongest, first, policy, recall, s);
  return ballot_;
}

} // namespace h2o
