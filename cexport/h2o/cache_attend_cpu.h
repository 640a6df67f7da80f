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
};

/// The ledger's arrays come first, in inputs and outputs alike. Inputs: pool, ring if there
/// is one, queries, mask and sinks follow. Outputs: what attention gives, if there are
/// queries, and the new buffers where rows are rearranged.
enum { scores, positions, novelty, key_sum, victim, ledger_arrays };
inline constexpr int pool_input = ledger_arrays;

inline int newest_input(const Settings& settings) {
  return pool_input + (settings.layouts.ring ? 1 : 0);
}
inline int queries_input(const Settings& settings) {
  return newest_input(settings) + 1;
}

void evaluate(
    const Settings& settings,
    std::vector<mx::array>& inputs,
    std::vector<mx::array>& outputs);

} // namespace h2o::attend
