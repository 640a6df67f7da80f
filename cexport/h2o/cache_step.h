#pragma once

#include <algorithm>

#include "config.h"

namespace h2o {

/// The row number of a token that overwrites the victim.
inline constexpr int over_victim = -1;

/// The new tokens of a cache, and the rows of old and new tokens.
///
/// Without a ring, all rows are in the pool. With a ring, the token at position p is in
/// slot p % ring_rows until ring_rows newer tokens have arrived. Then it moves to the
/// pool, where it overwrites the victim if the pool is full. A chunk of several tokens is
/// written behind the rows in use; its attention then sorts all rows into ring and pool.
///
/// A *row* is an index into the rows that attention reads: the pool's rows in use, then the
/// ring's. An *entry* is an index into the ledger, which has `pool_rows` entries for the
/// pool, then one for each slot of the ring.
struct CacheStep {
  CacheConfig config;
  int offset; // tokens seen before
  int tokens; // new tokens without attention, or 0

  bool is_single() const {
    return tokens == 1;
  }
  int seen() const {
    return offset + tokens;
  }

  /// Rows of the pool in use after `count` tokens and the evictions that they cause.
  int pool_length(int count) const {
    return std::clamp(count - config.ring_rows(), 0, config.pool_rows());
  }
  int ring_length(int count) const {
    return std::min(count, config.ring_rows());
  }

  /// Rows of the pool in use with the new tokens, before eviction.
  int pool_used() const {
    if (is_single()) {
      return pool_length(seen());
    }
    return pool_length(offset) + (config.format.has_ring() ? 0 : tokens);
  }
  int ring_used() const {
    if (is_single()) {
      return ring_length(seen());
    }
    return ring_length(offset) + (config.format.has_ring() ? tokens : 0);
  }
  int rows() const {
    return pool_used() + ring_used();
  }

  /// Whether the rows that stay are sorted into new buffers after attention.
  bool rearranges() const {
    return config.format.has_ring() ? !is_single() : rows() > config.max_size;
  }

  /// Whether the next token needs a victim.
  bool chooses_victim() const {
    return seen() >= config.max_size;
  }

  /// The row of the first new token in its buffer: the ring, or the pool if there is no
  /// ring.
  int first_row() const {
    if (config.format.has_ring()) {
      return is_single() ? offset % config.ring_rows() : ring_length(offset);
    }
    return is_single() && offset >= config.max_size ? over_victim : pool_length(offset);
  }

  /// Whether the ring's row that the new token overwrites moves to the pool first.
  bool leaves_ring() const {
    return config.format.has_ring() && is_single() && offset >= config.ring_rows();
  }

  /// The pool's row for the token that leaves the ring: a free row, the victim's, or -1
  /// if that token is the victim itself.
  int pool_row_for_leaving(int victim) const {
    const int filled = pool_length(offset);
    if (filled < config.pool_rows()) {
      return filled;
    }
    return victim < config.pool_rows() ? std::max(victim, 0) : -1;
  }
};

} // namespace h2o
