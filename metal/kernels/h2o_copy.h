#pragma once

#include "h2o_types.h"

#include "h2o_parameters.h"

/// Copies elements of one size from a source with any strides; one thread per element.
template <typename E>
[[kernel]] void h2o_copy(
    const device E* from [[buffer(0)]],
    device E* to [[buffer(1)]],
    const constant H2OCopy& copy [[buffer(2)]],
    uint3 index [[thread_position_in_grid]]) {
  const int64_t outer = index.z / copy.heads;
  const int64_t head = index.z % copy.heads;
  to[outer * copy.to_outer + head * copy.to_head + index.y * copy.to_row + index.x] = from
      [outer * copy.from_outer + head * copy.from_head + index.y * copy.from_row +
       index.x * copy.from_element];
}
