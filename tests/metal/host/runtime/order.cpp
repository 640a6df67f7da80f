#include "order.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace h2o::host {

std::vector<uint32_t> Order::of(uint32_t count, uint64_t salt) const {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  if (kind == Kind::reverse) {
    std::reverse(order.begin(), order.end());
  } else if (kind == Kind::shuffled) {
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed * 1000003 + salt));
  }
  return order;
}

} // namespace h2o::host
