#pragma once

#include <string>
#include <utility>
#include <vector>

#include "mlx/dtype.h"

namespace h2o {

/// How a row's score is made from the attention that it receives.
enum class Score { peak, softmax, abs_logit };

/// How keys and values are stored: 16 bits stands for their own dtype, 4 and 8 for
/// MLX's affine quantisation in groups of `group_size` elements.
struct RowFormat {
  int key_bits = 16;
  int value_bits = 16;
  int group_size = 64;
  mlx::core::Dtype dtype = mlx::core::float32; // of quantised vectors' scales and biases

  bool is_dense() const {
    return key_bits == 16 && value_bits == 16;
  }
};

/// Which rows a cache keeps. Words and defaults are those of `H2OConfig` in
/// Python and `H2OConfiguration` in Swift.
struct CacheConfig {
  int max_size;
  int sink_size;
  int heavy_budget;
  int recent_budget;
  Score score;
  float decay;
  float novelty;
  int observation_window;
  std::vector<std::pair<int, int>> pinned; // half-open position ranges
  RowFormat format = {};
  float novelty_margin = 0.0f; // 0: novelty counts from a cosine of 1

  /// Whether `tokens` written after `length` rows take the victim's place: one token into a
  /// full cache.
  bool overwrites(int tokens, int length) const {
    return tokens == 1 && length == max_size;
  }

  /// Whether `position` may not be evicted while `recent_from` is the oldest
  /// position of the recent window.
  bool is_protected(int position, int recent_from) const;
};

/// Each throws std::invalid_argument naming the field, its value and what is allowed.
void validate(const CacheConfig& config);
void validate(const RowFormat& format);

/// The enumerator called `name`; throws std::invalid_argument listing the names.
Score score_from_name(const std::string& name);

/// Rows that a buffer of `capacity` rows must have to hold `needed`: it grows in
/// steps of 256 up to `max_size`, and past that only as far as a chunk needs.
int grown_capacity(int capacity, int needed, int max_size);

} // namespace h2o
