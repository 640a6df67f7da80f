#pragma once

#include "h2o_host/kernel.h"

// A call that must stay one call, under the conditions that the source puts it under. It
// must be on all that is called on the way, or the compiler infers that it is of no use.
#define H2O_MEETING [[clang::nomerge]] __attribute__((convergent))

namespace h2o::host {

/// The values that a simdgroup's lanes brought to one operation, and what came of them.
struct Lanes {
  static constexpr int width = 32;
  static constexpr int max_bytes = 32;

  alignas(32) unsigned char in[width][max_bytes];
  alignas(32) unsigned char out[max_bytes];
  uint32_t present;

  template <typename T>
  const T& at(int lane) const {
    return *reinterpret_cast<const T*>(in[lane]);
  }
};

/// Brings a lane's value and waits until all lanes of its simdgroup have. The last to come
/// calls `finish`. `site` is the place of the call: lanes must come from the same one.
H2O_MEETING Lanes& meet(
    const char* operation,
    const void* site,
    const void* value,
    unsigned size,
    void (*finish)(Lanes&)) noexcept;

int lane_index() noexcept;

H2O_MEETING void wait_for_threadgroup(const void* site) noexcept;

} // namespace h2o::host
