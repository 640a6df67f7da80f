#pragma once

#include <algorithm>

#include "config.h"

namespace h2o {

/// The row of a token that takes the victim's place.
inline constexpr int over_victim = -1;

/// New tokens of a cache, and where they and the older ones lie.
///
/// Without a ring all rows are the pool's. With one, the token of position p lies in slot
/// p % ring_rows until as many newer ones have come; then it moves to the pool, over the
/// victim if that is full. A chunk of several tokens stands behind the rows in use until its
/// attention, which then sorts all of them into ring and pool.
///
/// A *row* counts those that attention reads: the pool's in use, then the ring's. An *entry*
/// is a row's place in the ledger: the pool's `pool_rows`, then the ring's slots.
struct CacheStep {
  CacheConfig config;
  int offset; // tokens seen before
  int tokens; // new ones; 0: none whose attention is outstanding

  bool is_single() const {
    return tokens == 1;
  }
  int seen() const {
    return offset + tokens;
  }

  /// Rows in use once `count` tokens were seen and evicted from.
  int pool_length(int count) const {
    return std::clamp(count - config.ring_rows(), 0, config.pool_rows());
  }
  int ring_length(int count) const {
    return std::min(count, config.ring_rows());
  }

  /// Rows in use with the new tokens, none of them evicted.
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

  /// Whether attention is followed by new buffers, in which the rows that stay are sorted.
  bool rearranges() const {
    return config.format.has_ring() ? !is_single() : rows() > config.max_size;
  }

  /// Whether the next token needs a victim.
  bool chooses_victim() const {
    return seen() >= config.max_size;
  }

  /// The row of the first new token in its buffer: the ring, or the pool without one.
  int first_row() const {
    if (config.format.has_ring()) {
      return is_single() ? offset % config.ring_rows() : ring_length(offset);
    }
    return is_single() && offset >= config.max_size ? over_victim : pool_length(offset);
  }

  /// Whether the ring's row that the new token takes moves to the pool first.
  bool leaves_ring() const {
    return config.format.has_ring() && is_single() && offset >= config.ring_rows();
  }

  /// The pool's row for what leaves the ring: a free one, the victim's, or -1 where it is
  /// the victim itself.
  int pool_row_for_leaving(int victim) const {
    const int filled = pool_length(offset);
    if (filled < config.pool_rows()) {
      return filled;
    }
    return victim < config.pool_rows() ? std::max(victim, 0) : -1;
  }
};

} // namespace h2o
