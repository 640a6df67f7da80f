#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "h2o_host/kernel.h"

namespace h2o::host {

/// The order in which threadgroups, simdgroups and lanes take their turns. What a kernel
/// computes must not depend on it.
struct Order {
  enum class Kind { forward, reverse, shuffled };

  Kind kind = Kind::forward;
  uint64_t seed = 0;

  /// 0 .. count - 1 in this order; `salt` tells one shuffle from another.
  std::vector<uint32_t> of(uint32_t count, uint64_t salt) const;
};

/// What all threads of one threadgroup have in common.
struct GroupLaunch {
  const Kernel* kernel;
  void* const* addresses; // one for each parameter
  Vector3 position;       // of the threadgroup in the grid
  Vector3 groups;
  Vector3 size;         // threads of this group
  Vector3 nominal_size; // of a group that the grid's edge does not cut
  Vector3 threads;      // of the grid
  Order order;
};

/// Runs every thread of a threadgroup to its end, or to the first error, which it returns.
std::optional<std::string> run_threadgroup(const GroupLaunch& launch);

/// Whether a kernel's thread is running.
bool in_kernel();

/// Ends the threadgroup with an error; says which thread. Called by a kernel's thread.
[[noreturn]] void abandon(const std::string& what);

/// Where private variables of the running thread lie, and of all threads.
struct StackRange {
  uintptr_t begin;
  uintptr_t end;
};
extern StackRange thread_stack;
StackRange all_stacks();

} // namespace h2o::host
