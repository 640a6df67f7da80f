#pragma once

#include <algorithm>

#include "mixed.h"
#include "row_layout.h"

/// What mixed_cache_attend's primitive is told, where its inputs and outputs stand, and its
/// evaluation on the CPU.
namespace h2o::mixed_attend {

struct Settings {
  MixedConfig config;
  int tokens;
  int offset; // tokens seen before
  float scale;
  bool causal;
  bool observed; // there are queries
  bool masked;
  bool sunk;
  RowLayout pool_layout;
  RowLayout ring_layout;

  bool single() const {
    return tokens == 1;
  }
  int seen() const {
    return offset + tokens;
  }
  /// Rows that the newest tokens attend to, in the pool and in the ring.
  int pool_rows() const {
    return pool_length(config, single() ? seen() : offset);
  }
  int ring_rows() const {
    return single() ? ring_length(config, seen()) : ring_length(config, offset) + tokens;
  }
  int rows() const {
    return pool_rows() + ring_rows();
  }
};

namespace input {
enum { pool, ring, scores, positions, novelty, key_sum, victim, fixed };
}
namespace output {
enum { scores, positions, novelty, key_sum, victim, fixed };
}

void evaluate(
    const Settings& settings,
    std::vector<mx::array>& inputs,
    std::vector<mx::array>& outputs);

} // namespace h2o::mixed_attend
