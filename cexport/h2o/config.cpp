#include "config.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>

namespace h2o {

namespace {

constexpr int growth_step = 256;

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  std::ostringstream text;
  text << "[H2OConfig] ";
  (text << ... << parts);
  throw std::invalid_argument(text.str());
}

/// Positions covered by sinks or pins, each counted once.
int64_t held_positions(const CacheConfig& config) {
  auto ranges = config.pinned;
  ranges.emplace_back(0, config.sink_size);
  std::sort(ranges.begin(), ranges.end());
  int64_t held = 0;
  int covered = 0;
  for (auto [begin, end] : ranges) {
    begin = std::max(begin, covered);
    if (end > begin) {
      held += end - begin;
      covered = end;
    }
  }
  return held;
}

} // namespace

bool CacheConfig::is_protected(int position, int recent_from) const {
  if (position < sink_size || position >= recent_from) {
    return true;
  }
  return std::any_of(pinned.begin(), pinned.end(), [position](const auto& range) {
    return range.first <= position && position < range.second;
  });
}

void validate(const CacheConfig& config) {
  if (config.max_size < 1) {
    refuse("max_size is ", config.max_size, "; it must be at least 1.");
  }
  if (config.sink_size < 0) {
    refuse("sink_size is ", config.sink_size, "; it must be 0 or more.");
  }
  if (config.heavy_budget < 0) {
    refuse("heavy_budget is ", config.heavy_budget, "; it must be 0 or more.");
  }
  if (config.recent_budget < 1) {
    refuse("recent_budget is ", config.recent_budget, "; it must be at least 1.");
  }
  int64_t budget = int64_t(config.sink_size) + config.heavy_budget + config.recent_budget;
  if (budget > config.max_size) {
    refuse(
        "sink_size + heavy_budget + recent_budget is ", budget, " but max_size is ",
        config.max_size, ". Lower a budget or raise max_size.");
  }
  if (!(config.decay >= 0.0f && config.decay <= 1.0f)) {
    refuse("decay is ", config.decay, "; it must lie in 0...1.");
  }
  if (!(config.novelty >= 0.0f) || !std::isfinite(config.novelty)) {
    refuse("novelty is ", config.novelty, "; it must be a finite number, 0 or more.");
  }
  if (!(config.novelty_margin >= 0.0f) || !std::isfinite(config.novelty_margin)) {
    refuse(
        "novelty_margin is ", config.novelty_margin,
        "; it must be a finite number, 0 or more.");
  }
  if (config.observation_window < 1) {
    refuse("observation_window is ", config.observation_window, "; it must be at least 1.");
  }
  validate(config.format);
  for (auto [begin, end] : config.pinned) {
    if (begin < 0 || end <= begin) {
      refuse(
          "pinned has the range ", begin, "...", end,
          "; each is half-open with 0 <= begin < end.");
    }
  }
  int64_t held = held_positions(config) + config.recent_budget;
  if (held >= config.max_size) {
    refuse(
        "sinks, pinned and recent positions hold ", held, " rows of max_size ",
        config.max_size, ", which leaves none to evict. Raise max_size to at least ",
        held + 1, " or pin less.");
  }
}

void validate(const RowFormat& format) {
  for (auto [name, bits] :
       {std::pair{"key_bits", format.key_bits},
        std::pair{"value_bits", format.value_bits}}) {
    if (bits != 4 && bits != 8 && bits != 16) {
      refuse(name, " is ", bits, "; it must be 4, 8 or 16.");
    }
  }
  if ((format.key_bits == 16) != (format.value_bits == 16)) {
    refuse(
        "key_bits is ", format.key_bits, " and value_bits ", format.value_bits,
        "; either both are 16 or neither is.");
  }
  if (format.group_size != 32 && format.group_size != 64 && format.group_size != 128) {
    refuse("group_size is ", format.group_size, "; it must be 32, 64 or 128.");
  }
}

Score score_from_name(const std::string& name) {
  if (name == "peak") {
    return Score::peak;
  }
  if (name == "softmax") {
    return Score::softmax;
  }
  if (name == "abs_logit") {
    return Score::abs_logit;
  }
  refuse("score is \"", name, "\"; it must be peak, softmax or abs_logit.");
}

int grown_capacity(int capacity, int needed, int max_size) {
  if (needed <= capacity) {
    return capacity;
  }
  if (needed > max_size) {
    return needed;
  }
  int rounded = (needed + growth_step - 1) / growth_step * growth_step;
  return std::min(rounded, max_size);
}

} // namespace h2o
