#pragma once

#include <cstdint>
#include <vector>

#include "cpu_attention.h"

/// The policy for the rows of one KV head: scores, novelty and the choice of rows to
/// evict. All implementations of the cache follow these definitions.
namespace h2o::cpu {

/// Adds a token, written to `row`, to the ledger: unobserved, with its position and its
/// novelty. With u = `key`/|key| and S the sum of all unit keys so far, u included,
/// novelty is 1 - u.S/|S|. With a `novelty_margin` above 0 it is max(0, c - u.S/|S| -
/// margin), where c is the typical cosine. A key without a finite direction adds nothing
/// to S. A key that is not finite has novelty 0.
void enter_token(
    const Policy& policy,
    HeadLedger& ledger,
    int row,
    int position,
    RowsView key,
    int dim,
    float* scratch);

/// Updates the scores of all rows that one query sees by m, the mean over the group of
/// the quantity that `policy.score` names. A row's first m becomes its score; an m that
/// is not finite is ignored. `m` is scratch memory for at least as many floats as rows.
void observe(
    const Policy& policy,
    const QueryResult& query,
    int group,
    bool may_hide,
    float* scores,
    float* m);

/// Returns the least important unprotected row among the first `count`; ties go to the
/// lowest position. `recent_from` is the oldest position of the recent window. `scratch`
/// has `count` floats.
int choose_victim(
    const Policy& policy,
    const HeadLedger& ledger,
    int count,
    int recent_from,
    float* scratch);

/// Returns the rows, ascending, that stay when the `drop` least important unprotected
/// rows among the first `count` are evicted.
std::vector<int> rows_to_keep(
    const Policy& policy,
    const HeadLedger& ledger,
    int count,
    int drop,
    int recent_from,
    float* scratch);

} // namespace h2o::cpu
