#include "mixed.h"

#include <algorithm>

#include "checks.h"
#include "mlx/ops.h"
#include "row_layout.h"

namespace h2o {

void validate(const MixedConfig& config) {
  CacheConfig policy = config.policy;
  policy.format = {};
  validate(policy);
  for (auto [name, bits] :
       {std::pair{"heavy_bits", config.heavy_bits},
        std::pair{"recent_bits", config.recent_bits}}) {
    if (bits != 4 && bits != 8 && bits != 16) {
      refuse("MixedConfig", name, " is ", bits, "; it must be 4, 8 or 16.");
    }
  }
  validate(config.pool_format());
}

int ring_length(const MixedConfig& config, int offset) {
  return std::min(offset, config.ring_rows());
}

int pool_length(const MixedConfig& config, int offset) {
  return std::clamp(offset - config.ring_rows(), 0, config.pool_rows());
}

int pool_row_for_leaving(const MixedConfig& config, int offset, int victim) {
  const int filled = pool_length(config, offset);
  if (filled < config.pool_rows()) {
    return filled;
  }
  return victim < config.pool_rows() ? std::max(victim, 0) : -1;
}

std::pair<mx::array, mx::array> mixed_fetch(
    const MixedRows& rows,
    int pooled,
    int ringed,
    int key_dim,
    const MixedConfig& config,
    mx::StreamOrDevice s) {
  std::vector<mx::array> keys, values;
  auto fetch = [&](const mx::array& a, int count, const RowFormat& format) {
    if (count > 0) {
      auto stop = a.shape();
      stop[2] = count;
      auto used = mx::slice(a, mx::Shape(4, 0), stop, s);
      auto [k, v] = unpacked_rows(used, format, key_dim, config.dtype, s);
      keys.push_back(k);
      values.push_back(v);
    }
  };
  fetch(rows.pool, pooled, config.pool_format());
  fetch(rows.ring, ringed, config.ring_format());
  return {mx::concatenate(keys, 2, s), mx::concatenate(values, 2, s)};
}

} // namespace h2o
