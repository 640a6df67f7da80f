#pragma once

#include "h2o_types.h"

/// The pool's row for the token that leaves the ring: a free row, the victim's, or -1 if
/// the token is the victim itself.
inline int h2o_pool_row_for_leaving(int used, int size, int victim) {
  if (used < size) {
    return used;
  }
  return victim < size ? max(victim, 0) : -1;
}
