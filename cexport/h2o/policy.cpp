#include "policy.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace h2o::cpu {

namespace {

float dot(const float* a, const float* b, int dim) {
  float result;
  kernels().dot_rows(a, 1, {b, Element::float32, 0}, 1, dim, &result, 1);
  return result;
}

/// Whether any head of the group sees row n.
bool is_seen(const QueryResult& query, int group, int n) {
  for (int g = 0; g < group; ++g) {
    if (query.logits[g * query.stride + n] != lowest) {
      return true;
    }
  }
  return false;
}

/// The cosine c between a typical one of `count` keys and the mean of all of them. It
/// follows from the squared length of the sum of their unit vectors, count + count (count
/// - 1) c^2.
float typical_cosine(float sum_square, int count) {
  float pairs = std::max(1.0f, float(count) * (float(count) - 1.0f));
  return std::sqrt(std::max(0.0f, sum_square - float(count)) / pairs);
}

} // namespace

void enter_token(
    const Policy& policy,
    HeadLedger& ledger,
    int row,
    int position,
    RowsView key,
    int dim,
    float* scratch) {
  const float margin = policy.novelty_margin;
  ledger.scores[row] = -1.0f;
  ledger.positions[row] = position;
  float* unit = scratch;
  kernels().to_float32(key, 1, dim, unit, dim);
  float norm = std::sqrt(dot(unit, unit, dim));
  if (!std::isfinite(norm)) {
    ledger.novelty[row] = 0.0f;
    return;
  }
  if (norm > 0.0f) {
    for (int d = 0; d < dim; ++d) {
      unit[d] /= norm;
      ledger.key_sum[d] += unit[d];
    }
  }
  float sum_square = dot(ledger.key_sum, ledger.key_sum, dim);
  float sum_norm = std::sqrt(sum_square);
  float along = sum_norm > 0.0f ? dot(unit, ledger.key_sum, dim) / sum_norm : 0.0f;
  ledger.novelty[row] =
      margin > 0.0f
          ? std::max(0.0f, typical_cosine(sum_square, position + 1) - along - margin)
          : 1.0f - along;
}

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
