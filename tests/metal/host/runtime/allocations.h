#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mlx/array.h"

namespace h2o::host {

namespace mx = mlx::core;
using Data = std::shared_ptr<mx::array::Data>;

/// Memory of an array, told from memory that lay at the same address before. On a device
/// an address is not used again until the command buffer is done with it.
struct Allocation {
  uint64_t id;
  std::weak_ptr<mx::array::Data> data;
  /// The evaluation that made it, or 0: there only its dispatches write it, and what none
  /// of them has written holds no value.
  uint64_t made_in;
  std::vector<uint64_t> written = {}; // a bit for each byte
};

/// The same for the same data, for as long as the data lives. `made_in` counts where it is
/// asked for the first time.
std::shared_ptr<Allocation> allocation_of(const mx::array& array, uint64_t made_in = 0);

} // namespace h2o::host
