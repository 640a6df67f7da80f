#include "policy.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace h2o::cpu {

namespace {

/// Whether any head of the group sees row n.
bool is_seen(const QueryResult& query, int group, int n) {
  for (int g = 0; g < group; ++g) {
    if (query.logits[g * query.stride + n] != lowest) {
      return true;
    }
  }
  return false;
}

} // namespace

void observe(
    const Policy& policy,
    const QueryResult& query,
    int group,
    bool may_hide,
    float* scores,
    float* m) {
  std::fill(m, m + query.rows, 0.0f);
  for (int g = 0; g < group; ++g) {
    if (policy.score == Score::abs_logit) {
      kernels().add_scaled_abs(
          query.logits + g * query.stride, 1.0f / group, query.rows, m);
    } else {
      kernels().add_scaled(
          query.weights + g * query.stride, query.normalizers[g] / group, query.rows, m);
    }
  }
  if (may_hide) {
    for (int n = 0; n < query.rows; ++n) {
      if (!is_seen(query, group, n)) {
        m[n] = infinity; // counts as not observed
      }
    }
  }
  kernels().update_scores(policy, m, query.rows, scores);
}

int choose_victim(
    const Policy& policy,
    const HeadLedger& ledger,
    int count,
    int recent_from,
    float* scratch) {
  const float least = kernels().importance(policy, ledger, count, recent_from, scratch);
  int victim = -1;
  for (int n = 0; n < count && least != infinity; ++n) {
    if (scratch[n] == least &&
        (victim < 0 || ledger.positions[n] < ledger.positions[victim])) {
      victim = n;
    }
  }
  return victim;
}

std::vector<int> rows_to_keep(
    const Policy& policy,
    const HeadLedger& ledger,
    int count,
    int drop,
    int recent_from,
    float* scratch) {
  kernels().importance(policy, ledger, count, recent_from, scratch);
  // A hostile ledger may contain NaN, which has no order: such rows are evicted first.
  std::replace_if(
      scratch, scratch + count, [](float x) { return std::isnan(x); }, -infinity);
  std::vector<int> rows(count);
  std::iota(rows.begin(), rows.end(), 0);
  std::nth_element(rows.begin(), rows.begin() + drop, rows.end(), [&](int a, int b) {
    if (scratch[a] != scratch[b]) {
      return scratch[a] < scratch[b];
    }
    return ledger.positions[a] < ledger.positions[b];
  });
  rows.erase(rows.begin(), rows.begin() + drop);
  std::sort(rows.begin(), rows.end());
  return rows;
}

} // namespace h2o::cpu
