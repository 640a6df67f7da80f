#pragma once

#include <cstdint>
#include <vector>

#include "cpu_attention.h"

/// Which rows of one KV head stay: scores, novelty and the choice of rows to
/// evict, as all implementations of the cache define them.
namespace h2o::cpu {

/// The cosine that a typical one of `count` keys has with the mean of them all, from the
/// squared length of the sum of their unit vectors, count + count (count - 1) c^2.
float typical_cosine(float sum_square, int count);

/// Enters a token written to `row`: unobserved, with its position, and its novelty
/// 1 - u.S/|S| against S, the sum of all unit keys so far, u = `key`/|key| included; with a
/// `novelty_margin` above 0, max(0, c - u.S/|S| - margin), c the typical cosine. A key
/// without a finite direction adds nothing to S; if it is not finite its novelty is 0.
void enter_token(
    const Policy& policy,
    HeadLedger& ledger,
    int row,
    int position,
    RowsView key,
    int dim,
    float* scratch);

/// Updates the scores of all rows that one query sees with m, the mean over the
/// group of what `policy.score` looks at. A row's first m sets its score; m that
/// is not finite counts as not seen. `m` is scratch of at least as many rows.
void observe(
    const Policy& policy,
    const QueryResult& query,
    int group,
    bool may_hide,
    float* scores,
    float* m);

/// The unprotected row of least importance among `count`, ties to the lowest
/// position; `recent_from` is the oldest position of the recent window.
/// `scratch` holds `count` floats.
int choose_victim(
    const Policy& policy,
    const HeadLedger& ledger,
    int count,
    int recent_from,
    float* scratch);

/// The rows, ascending, that stay when the `drop` least important unprotected of
/// `count` go.
std::vector<int> rows_to_keep(
    const Policy& policy,
    const HeadLedger& ledger,
    int count,
    int drop,
    int recent_from,
    float* scratch);

} // namespace h2o::cpu
