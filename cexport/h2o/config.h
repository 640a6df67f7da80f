#pragma once

#include "mlx/dtype.h"
#include "policy_fields.h"

namespace h2o {

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

/// Which rows a cache keeps, and how they are stored.
struct CacheConfig : Policy {
  RowFormat format = {};

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

/// Rows that a buffer of `capacity` rows must have to hold `needed`: it grows in
/// steps of 256 up to `max_size`, and past that only as far as a chunk needs.
int grown_capacity(int capacity, int needed, int max_size);

} // namespace h2o
