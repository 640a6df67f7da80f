#pragma once

#include <cstdint>
#include <vector>

#include "cpu_attention.h"

/// The policy for the rows of one KV head: scores, and the choice of rows to evict. All
/// implementations of the cache follow these definitions.
namespace h2o::cpu {

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
