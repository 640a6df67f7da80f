#pragma once

#include "cache_step.h"
#include "row_layout.h"

/// What cache_attend's primitive is told, where its inputs and outputs stand, and its
/// evaluation on the CPU.
namespace h2o::attend {

struct Settings {
  CacheStep step;
  Layouts layouts;
  mx::Dtype dtype; // of keys and values
  float scale;
  bool causal;
  bool has_queries;
  bool has_mask;
  bool has_sinks;
  bool has_held;
};

/// The ledger's arrays come first, in inputs and outputs alike. Inputs: which rows are held,
/// if the cache says so, pool, ring if there is one, queries, mask and sinks follow. Outputs:
/// what attention gives, if there are queries, and where rows are rearranged, which of them
/// are held and the new buffers.
enum { scores, positions, novelty, key_sum, victim, ledger_arrays, held = ledger_arrays };

inline int pool_input(const Settings& settings) {
  return ledger_arrays + (settings.has_held ? 1 : 0);
}
inline int newest_input(const Settings& settings) {
  return pool_input(settings) + (settings.layouts.ring ? 1 : 0);
}
inline int queries_input(const Settings& settings) {
  return newest_input(settings) + 1;
}

void evaluate(
    const Settings& settings,
    std::vector<mx::array>& inputs,
    std::vector<mx::array>& outputs);

} // namespace h2o::attend
