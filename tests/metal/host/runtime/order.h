#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace h2o::host {

/// The order in which threadgroups, simdgroups and lanes take their turns. What a kernel
/// computes must not depend on it.
struct Order {
  enum class Kind { forward, reverse, shuffled };

  Kind kind = Kind::forward;
  uint64_t seed = 0;

  /// 0 .. count - 1 in this order; `salt` tells one shuffle from another.
  std::vector<uint32_t> of(uint32_t count, uint64_t salt) const;
};

} // namespace h2o::host
