#pragma once

#include <algorithm>

#include "functions.h"
#include "row_layout.h"

/// What cache_attend's primitive is told, where its inputs and outputs stand, and its
/// evaluation on the CPU.
namespace h2o::attend {

struct Settings {
  CacheConfig config;
  int tokens;
  int offset; // tokens seen before
  int length; // rows in use before
  float scale;
  bool causal;
  bool observed; // there are queries
  bool masked;
  bool sunk;
  RowLayout layout;

  int rows_written() const {
    return config.overwrites(tokens, length) ? length : length + tokens;
  }
  int rows_kept() const {
    return std::min(rows_written(), config.max_size);
  }
  bool evicts() const {
    return rows_written() > config.max_size;
  }
};

/// Where each input and output stands; the optional ones follow the fixed ones.
namespace input {
enum { rows, scores, positions, novelty, key_sum, victim, fixed };
}
namespace output {
enum { scores, positions, novelty, key_sum, victim, fixed };
}

void evaluate(
    const Settings& settings,
    std::vector<mx::array>& inputs,
    std::vector<mx::array>& outputs);

} // namespace h2o::attend
