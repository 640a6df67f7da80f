#include "choice.h"

#include <algorithm>
#include <deque>

namespace h2o {

namespace {

/// The largest of values[n - spread] to values[n + before] for each n.
std::vector<float> largest_around(
    const std::vector<float>& values, int spread, int before) {
  const int count = int(values.size());
  std::vector<float> largest(count);
  std::deque<int> best; // falling values, each the largest of what follows it
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

} // namespace

bool is_kept_anyway(const Policy& policy, int position, int seen) {
  if (position < policy.sink_size || position >= seen - policy.recent_budget) {
    return true;
  }
  return std::any_of(policy.pinned.begin(), policy.pinned.end(), [&](const auto& range) {
    return position >= range.first && position < range.second;
  });
}

std::vector<int> choose_positions(
    const std::vector<float>& asked_for,
    int first,
    int seen,
    int wanted,
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
  std::vector<int> chosen;
  for (int n = 0; n < int(own.size()); ++n) {
    if (own[n] >= 0.0f && counts[n] > 0.0f && counts[n] >= least) {
      chosen.push_back(n);
    }
  }
  const size_t count = std::min(chosen.size(), size_t(std::max(0, wanted)));
  std::partial_sort(
      chosen.begin(), chosen.begin() + count, chosen.end(),
      [&](int a, int b) { return counts[a] != counts[b] ? counts[a] > counts[b] : a < b; });
  chosen.resize(count);
  for (int& position : chosen) {
    position += first;
  }
  return chosen;
}

} // namespace h2o
