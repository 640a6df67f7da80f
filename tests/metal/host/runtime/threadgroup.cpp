#include "threadgroup.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <random>
#include <sstream>
#include <utility>

/// Saves this context's registers on its stack, its stack pointer in `*from`, and goes on
/// at the context that was saved as `to`.
extern "C" void h2o_switch_context(void** from, void* to);

// Only what a called function must preserve is saved: a switch is a call.
#if defined(__x86_64__)
asm(R"(
.text
.globl h2o_switch_context
.hidden h2o_switch_context
h2o_switch_context:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  retq
)");
#elif defined(__aarch64__)
#if defined(__APPLE__)
#define H2O_SYMBOL "_h2o_switch_context"
#else
#define H2O_SYMBOL "h2o_switch_context"
#endif
asm(".text\n.globl " H2O_SYMBOL "\n.p2align 2\n" H2O_SYMBOL R"(:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
#else
#error "tests/metal/host switches contexts on x86_64 and arm64 only."
#endif

namespace h2o::host {

std::vector<uint32_t> Order::of(uint32_t count, uint64_t salt) const {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  if (kind == Kind::reverse) {
    std::reverse(order.begin(), order.end());
  } else if (kind == Kind::shuffled) {
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed * 1000003 + salt));
  }
  return order;
}

StackRange thread_stack{};

namespace {

constexpr int max_threads = 1024;
constexpr size_t stack_size = 64 << 10;

enum class State : unsigned char { ready, waits_for_lanes, waits_for_group, ended };

struct Simdgroup {
  Lanes lanes[2]; // an operation's values are read while the next one's arrive
  int turn = 0;
  int size = 0;
  int arrived = 0;
  int ended = 0;
  int at_barrier = 0;
  const char* operation = nullptr;
  const void* site = nullptr;
  int first_arrived = 0;
};

/// A context that starts with `entry`, which must not return, on the given stack.
void* new_context(char* stack, size_t size, void (*entry)()) {
  auto top = reinterpret_cast<uintptr_t>(stack + size) & ~uintptr_t(15);
#if defined(__x86_64__)
  // Six registers, then where to return; a called function expects an odd word on top.
  auto* frame = reinterpret_cast<void**>(top - 8 * sizeof(void*));
  std::memset(frame, 0, 8 * sizeof(void*));
  frame[6] = reinterpret_cast<void*>(entry);
#else
  auto* frame = reinterpret_cast<void**>(top - 160);
  std::memset(frame, 0, 160);
  frame[11] = reinterpret_cast<void*>(entry);
#endif
  return frame;
}

char* stacks() {
  static char* all = [] {
    void* mapped = mmap(
        nullptr, stack_size * max_threads, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
      throw std::bad_alloc();
    }
    return static_cast<char*>(mapped);
  }();
  return all;
}

/// The thread that is running, or -1. Kernels' static constructors are instrumented too,
/// and ask before any other constructor ran.
constinit int current = -1;

/// The one threadgroup that is running.
struct Running {
  const GroupLaunch* launch = nullptr;
  int threads = 0;
  void* scheduler = nullptr;
  void* contexts[max_threads];
  State states[max_threads];
  Simdgroup simdgroups[max_threads / Lanes::width];
  std::vector<uint32_t> lane_order;
  std::vector<uint32_t> rank_of_lane;
  std::vector<uint32_t> simdgroup_order;
  int at_barrier = 0;
  int ended = 0;
  const void* barrier_site = nullptr;
  int first_at_barrier = 0;
  std::optional<std::string> error;
} running;

void resume(int thread) {
  current = thread;
  uintptr_t stack = reinterpret_cast<uintptr_t>(stacks()) + stack_size * thread;
  thread_stack = {stack, stack + stack_size};
}

void switch_from(int thread, void* to) {
  h2o_switch_context(&running.contexts[thread], to);
}

/// Goes on with the next lane of the simdgroup that can, or else with the scheduler.
void yield() {
  const int thread = current;
  const int first = thread / Lanes::width * Lanes::width;
  const Simdgroup& simdgroup = running.simdgroups[thread / Lanes::width];
  uint32_t rank = running.rank_of_lane[thread - first];
  for (int i = 1; i < Lanes::width; ++i) {
    const int lane = static_cast<int>(running.lane_order[(rank + i) % Lanes::width]);
    if (lane < simdgroup.size && running.states[first + lane] == State::ready) {
      resume(first + lane);
      switch_from(thread, running.contexts[first + lane]);
      return;
    }
  }
  current = -1;
  switch_from(thread, running.scheduler);
}

std::string thread_name(int thread) {
  return "thread " + std::to_string(thread);
}

Vector3 position_of(int thread) {
  const uint32_t* size = running.launch->size.value;
  uint32_t index = static_cast<uint32_t>(thread);
  return {{index % size[0], index / size[0] % size[1], index / size[0] / size[1]}};
}

Vector3 builtin_value(Builtin builtin, int thread) {
  const GroupLaunch& launch = *running.launch;
  const uint32_t index = static_cast<uint32_t>(thread);
  switch (builtin) {
    case Builtin::thread_position_in_grid: {
      Vector3 position = position_of(thread);
      for (int i = 0; i < 3; ++i) {
        position.value[i] += launch.position.value[i] * launch.nominal_size.value[i];
      }
      return position;
    }
    case Builtin::threads_per_grid:
      return launch.threads;
    case Builtin::threadgroup_position_in_grid:
      return launch.position;
    case Builtin::threadgroups_per_grid:
      return launch.groups;
    case Builtin::thread_position_in_threadgroup:
      return position_of(thread);
    case Builtin::threads_per_threadgroup:
      return launch.size;
    case Builtin::thread_index_in_threadgroup:
      return {{index, 0, 0}};
    case Builtin::thread_index_in_simdgroup:
      return {{index % Lanes::width, 0, 0}};
    case Builtin::simdgroup_index_in_threadgroup:
      return {{index / Lanes::width, 0, 0}};
    case Builtin::none:
      break;
  }
  return {};
}

void end_thread() {
  const int thread = current;
  Simdgroup& simdgroup = running.simdgroups[thread / Lanes::width];
  if (simdgroup.arrived > 0) {
    abandon(
        "ends while " + thread_name(simdgroup.first_arrived) +
        " of its simdgroup waits in " + simdgroup.operation);
  }
  if (running.at_barrier > 0) {
    abandon(
        "ends while " + thread_name(running.first_at_barrier) +
        " waits at a threadgroup barrier");
  }
  running.states[thread] = State::ended;
  ++simdgroup.ended;
  ++running.ended;
  yield();
}

void run_thread() {
  const Kernel& kernel = *running.launch->kernel;
  Vector3 builtins[64];
  for (int i = 0; i < kernel.signature.count; ++i) {
    builtins[i] = builtin_value(kernel.signature.parameters[i].builtin, current);
  }
  kernel.invoke({running.launch->addresses, builtins});
  end_thread();
}

void start(const GroupLaunch& launch) {
  const uint32_t* size = launch.size.value;
  running.launch = &launch;
  running.threads = static_cast<int>(size[0] * size[1] * size[2]);
  running.at_barrier = running.ended = 0;
  running.error.reset();
  const int count = (running.threads + Lanes::width - 1) / Lanes::width;
  const uint64_t salt = launch.position.value[0] + 31 * launch.position.value[1];
  running.lane_order = launch.order.of(Lanes::width, salt);
  running.simdgroup_order = launch.order.of(static_cast<uint32_t>(count), salt + 1);
  running.rank_of_lane.resize(Lanes::width);
  for (uint32_t rank = 0; rank < Lanes::width; ++rank) {
    running.rank_of_lane[running.lane_order[rank]] = rank;
  }
  for (int i = 0; i < count; ++i) {
    Simdgroup& simdgroup = running.simdgroups[i];
    simdgroup.turn = simdgroup.arrived = simdgroup.ended = simdgroup.at_barrier = 0;
    simdgroup.size = std::min(Lanes::width, running.threads - i * Lanes::width);
  }
  for (int thread = 0; thread < running.threads; ++thread) {
    running.states[thread] = State::ready;
    running.contexts[thread] =
        new_context(stacks() + stack_size * thread, stack_size, &run_thread);
  }
}

/// A lane from which the simdgroup can go on, or -1.
int ready_thread(uint32_t simdgroup) {
  const int first = static_cast<int>(simdgroup) * Lanes::width;
  for (uint32_t lane : running.lane_order) {
    const int thread = first + static_cast<int>(lane);
    if (thread < running.threads && running.states[thread] == State::ready) {
      return thread;
    }
  }
  return -1;
}

} // namespace

StackRange all_stacks() {
  auto begin = reinterpret_cast<uintptr_t>(stacks());
  return {begin, begin + stack_size * max_threads};
}

bool in_kernel() {
  return current >= 0;
}

void abandon(const std::string& what) {
  const int thread = current;
  const uint32_t* group = running.launch->position.value;
  std::ostringstream message;
  message << running.launch->kernel->name << ": threadgroup (" << group[0] << ", "
          << group[1] << ", " << group[2] << "), thread " << thread << ": " << what << ".";
  running.error = message.str();
  current = -1;
  switch_from(thread, running.scheduler);
  __builtin_unreachable();
}

std::optional<std::string> run_threadgroup(const GroupLaunch& launch) {
  start(launch);
  bool progress = true;
  while (progress && !running.error && running.ended < running.threads) {
    progress = false;
    for (uint32_t simdgroup : running.simdgroup_order) {
      const int thread = ready_thread(simdgroup);
      if (thread >= 0) {
        progress = true;
        resume(thread);
        h2o_switch_context(&running.scheduler, running.contexts[thread]);
        if (running.error) {
          break;
        }
      }
    }
  }
  return running.error;
}

Lanes& meet(
    const char* operation,
    const void* site,
    const void* value,
    unsigned size,
    void (*finish)(Lanes&)) noexcept {
  const int thread = current;
  const int lane = thread % Lanes::width;
  Simdgroup& simdgroup = running.simdgroups[thread / Lanes::width];
  Lanes& lanes = simdgroup.lanes[simdgroup.turn];
  if (simdgroup.arrived == 0) {
    if (simdgroup.ended + simdgroup.at_barrier > 0) {
      abandon(
          std::string("is in ") + operation + ", which other lanes of its simdgroup " +
          (simdgroup.ended > 0 ? "ended without" : "do not reach before a barrier"));
    }
    simdgroup.operation = operation;
    simdgroup.site = site;
    simdgroup.first_arrived = thread;
    lanes.present = 0;
  } else if (simdgroup.site != site) {
    abandon(
        std::string("is in ") + operation + " while " +
        thread_name(simdgroup.first_arrived) + " of its simdgroup waits in " +
        (simdgroup.operation == std::string(operation) ? "another " : "") +
        simdgroup.operation);
  }
  __builtin_memcpy(lanes.in[lane], value, size);
  lanes.present |= uint32_t(1) << lane;
  if (++simdgroup.arrived < simdgroup.size) {
    running.states[thread] = State::waits_for_lanes;
    yield();
    return lanes;
  }
  if (finish != nullptr) {
    finish(lanes);
  }
  simdgroup.arrived = 0;
  simdgroup.turn ^= 1;
  State* states = &running.states[thread - lane];
  std::fill(states, states + simdgroup.size, State::ready);
  return lanes;
}

int lane_index() noexcept {
  return current % Lanes::width;
}

void wait_for_threadgroup(const void* site) noexcept {
  const int thread = current;
  Simdgroup& simdgroup = running.simdgroups[thread / Lanes::width];
  if (simdgroup.arrived > 0) {
    abandon(
        "is at a threadgroup barrier while " + thread_name(simdgroup.first_arrived) +
        " of its simdgroup waits in " + simdgroup.operation);
  }
  if (running.ended > 0) {
    abandon("is at a threadgroup barrier that other threads ended without");
  }
  if (running.at_barrier == 0) {
    running.barrier_site = site;
    running.first_at_barrier = thread;
  } else if (running.barrier_site != site) {
    abandon(
        "is at another threadgroup barrier than " + thread_name(running.first_at_barrier));
  }
  ++simdgroup.at_barrier;
  if (++running.at_barrier < running.threads) {
    running.states[thread] = State::waits_for_group;
    yield();
    return;
  }
  running.at_barrier = 0;
  for (int i = 0; i * Lanes::width < running.threads; ++i) {
    running.simdgroups[i].at_barrier = 0;
  }
  std::fill(running.states, running.states + running.threads, State::ready);
}

} // namespace h2o::host
