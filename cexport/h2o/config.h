#pragma once

#include "mlx/dtype.h"
#include "policy_rules.h"

namespace h2o {

/// How keys and values are stored. 16 bits keep their dtype; 4 and 8 bits use MLX's
/// affine quantization in groups of `group_size` elements.
///
/// With `recent_bits`, the newest tokens are in a ring of `recent_budget` rows at that
/// precision, and all others in a pool. Without it, all tokens are in the pool.
struct RowFormat {
  int key_bits = 16; // of the pool
  int value_bits = 16;
  int group_size = 64;
  mlx::core::Dtype dtype = mlx::core::float32; // of keys and values, if quantized
  int recent_bits = 0;                         // of the ring; 0: no ring
  bool rotated = false; // whether rows hold rotated keys and values; see row_layout.h

  bool has_ring() const {
    return recent_bits != 0;
  }
  /// Whether the pool's rows are not quantized.
  bool is_dense() const {
    return key_bits == 16;
  }
  /// Whether no row is quantized.
  bool is_all_dense() const {
    return is_dense() && (!has_ring() || recent_bits == 16);
  }
  /// The format of the ring's rows.
  RowFormat ring() const {
    return {recent_bits, recent_bits, group_size, dtype};
  }
};

/// The policy of a cache, completed by `complete`, and the format of its rows.
struct CacheConfig : Policy {
  RowFormat format = {};

  /// Whether the cache is bounded. Otherwise it keeps every token and needs no ledger.
  bool evicts() const {
    return max_size < largest_integer;
  }
  int ring_rows() const {
    return format.has_ring() ? recent_budget : 0;
  }
  int pool_rows() const {
    return max_size - ring_rows();
  }
};

/// Throws std::invalid_argument, which names the field, its value and what is allowed.
void validate(const RowFormat& format);

/// Rows that a buffer of `capacity` rows must have to hold `needed`: it grows in
/// steps of 256 up to `max_size`, and past that only as far as a chunk needs.
int grown_capacity(int capacity, int needed, int max_size);

} // namespace h2o
