// The memory that a running kernel sees, and the calls that the compiler puts before every
// load and store of it.

#include "memory.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "threadgroup.h"

namespace h2o::host {

void TouchedBytes::resize(size_t bytes) {
  clear();
  // One word more than needed: a mark may straddle the end by no more.
  bits_.resize(std::max(bits_.size(), bytes / 64 + 2));
}

void TouchedBytes::mark_range(size_t offset, size_t size) {
  for (; size > 16; offset += 16, size -= 16) {
    mark(offset, 16);
  }
  mark(offset, static_cast<unsigned>(size));
}

void TouchedBytes::clear() {
  for (uint32_t word : touched_) {
    bits_[word] = 0;
  }
  touched_.clear();
}

void Slot::open(size_t bytes, bool may_write) {
  size = bytes;
  writable = may_write;
  traffic = {};
  group_read.resize(bytes);
  group_written.resize(bytes);
  read.assign(bytes / 64 + 2, 0);
  written.assign(bytes / 64 + 2, 0);
}

int64_t Slot::finish_group() {
  int64_t shared = -1;
  auto conflict = [&](uint32_t word, uint64_t bits) {
    if (bits != 0) {
      int64_t byte = int64_t(word) * 64 + std::countr_zero(bits);
      shared = shared < 0 ? byte : std::min(shared, byte);
    }
  };
  for (uint32_t word : group_read.words()) {
    conflict(word, group_read.bits(word) & written[word]);
    traffic.read += std::popcount(group_read.bits(word));
  }
  for (uint32_t word : group_written.words()) {
    conflict(word, group_written.bits(word) & (written[word] | read[word]));
    traffic.written += std::popcount(group_written.bits(word));
  }
  for (uint32_t word : group_read.words()) {
    read[word] |= group_read.bits(word);
  }
  for (uint32_t word : group_written.words()) {
    written[word] |= group_written.bits(word);
  }
  group_read.clear();
  group_written.clear();
  return shared;
}

Slots::Slots() {
  void* reserved = mmap(
      nullptr, spacing * count, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
      0);
  if (reserved == MAP_FAILED) {
    throw std::bad_alloc();
  }
  base_ = reinterpret_cast<uintptr_t>(reserved);
}

void Slots::open(int slot, size_t bytes, bool may_write) {
  if (bytes > accessible_[slot]) {
    if (bytes > spacing - origin ||
        mprotect(data(slot), bytes, PROT_READ | PROT_WRITE) != 0) {
      throw std::bad_alloc();
    }
    accessible_[slot] = bytes;
  }
  slots[slot].open(bytes, may_write);
}

constinit Slots* all_slots = nullptr;

Slots& slots() {
  if (all_slots == nullptr) {
    all_slots = new Slots; // lives as long as the streams that run kernels
  }
  return *all_slots;
}

Storage& storage() {
  static Storage only;
  return only;
}

void Storage::clear() {
  std::fill(states_, states_ + used_, Byte::gap);
  std::fill(std::begin(variables_), std::end(variables_), Variable{});
  used_ = 0;
}

void Storage::restart() {
  for (const Variable& variable : variables_) {
    std::fill_n(states_ + variable.begin, variable.size, Byte::unwritten);
  }
}

void* Storage::variable(int ordinal, const char* name, size_t size, size_t alignment) {
  Variable& variable = variables_[ordinal];
  if (variable.name == nullptr) {
    size_t begin = (used_ + gap + alignment - 1) / alignment * alignment;
    size_t total = size;
    for (const Variable& other : variables_) {
      total += other.size;
    }
    if (total > metal_limit || begin + size > capacity) {
      abandon(
          "needs " + std::to_string(total) + " bytes of threadgroup memory; there are " +
          std::to_string(metal_limit));
    }
    variable = {name, begin, size};
    used_ = begin + size;
    std::fill_n(states_ + begin, size, Byte::unwritten);
  }
  return bytes_ + variable.begin;
}

std::string Storage::touch(uintptr_t address, size_t size, bool write) {
  size_t begin = address - reinterpret_cast<uintptr_t>(bytes_);
  if (begin + size > capacity) {
    return "outside of threadgroup memory";
  }
  for (size_t i = begin; i < begin + size; ++i) {
    if (states_[i] == Byte::gap || (!write && states_[i] == Byte::unwritten)) {
      const Variable* nearest = nullptr; // the last one that begins before
      for (const Variable& variable : variables_) {
        if (variable.name != nullptr && variable.begin <= i &&
            (nearest == nullptr || variable.begin > nearest->begin)) {
          nearest = &variable;
        }
      }
      if (nearest == nullptr) {
        return "before all threadgroup variables";
      }
      std::string at = "at byte " + std::to_string(begin - nearest->begin) +
                       " of threadgroup variable " + nearest->name;
      return states_[i] == Byte::gap
                 ? at + ", which has " + std::to_string(nearest->size)
                 : at + ", which no thread of the threadgroup has written";
    }
  }
  if (write) {
    std::fill_n(states_ + begin, size, Byte::written);
  }
  return {};
}

void* threadgroup_storage(
    int ordinal, const char* name, size_t size, size_t alignment) noexcept {
  return storage().variable(ordinal, name, size, alignment);
}

namespace {

std::string describe(size_t size, bool write) {
  return std::string(write ? "writes " : "reads ") + std::to_string(size) +
         (size == 1 ? " byte " : " bytes ");
}

/// Whether the address is in this module: constants of its code.
bool is_module_data(uintptr_t address) {
  static uintptr_t known_page = 0;
  if (address / 4096 == known_page) {
    return true;
  }
  Dl_info here{}, there{};
  const bool is = dladdr(reinterpret_cast<void*>(&is_module_data), &here) != 0 &&
                  dladdr(reinterpret_cast<void*>(address), &there) != 0 &&
                  here.dli_fbase == there.dli_fbase;
  if (is) {
    known_page = address / 4096;
  }
  return is;
}

/// An access to what is neither the thread's own nor in bounds of a buffer.
[[gnu::noinline]] void elsewhere(uintptr_t address, size_t size, bool write) {
  if (!in_kernel()) {
    return;
  }
  if (storage().holds(address)) {
    if (std::string wrong = storage().touch(address, size, write); !wrong.empty()) {
      abandon(describe(size, write) + wrong);
    }
    return;
  }
  if (slots().holds(address)) {
    const int slot = slots().slot_of(address);
    const int64_t offset = slots().offset_of(address);
    if (offset >= 0 && offset + size <= slots().slots[slot].size) {
      abandon("writes " + describe_slot(slot, offset).name + ", bound as an input");
    }
    abandon(describe(size, write) + describe_slot(slot, offset).outside);
  }
  const StackRange stacks = all_stacks();
  if (address >= stacks.begin && address < stacks.end) {
    abandon(describe(size, write) + "of another thread's private memory");
  }
  if (!write && is_module_data(address)) {
    return;
  }
  abandon(
      describe(size, write) + "at " + std::to_string(address) + ", which is in no buffer");
}

inline void mark(TouchedBytes& bytes, size_t offset, size_t size) {
  if (size <= 16) [[likely]] {
    bytes.mark(offset, static_cast<unsigned>(size));
  } else {
    bytes.mark_range(offset, size);
  }
}

template <bool write>
[[gnu::always_inline]] inline void touch(uintptr_t address, size_t size) {
  if (all_slots != nullptr && all_slots->holds(address)) [[likely]] {
    Slot& slot = all_slots->slots[all_slots->slot_of(address)];
    const uint64_t offset = static_cast<uint64_t>(all_slots->offset_of(address));
    if (offset <= slot.size && offset + size <= slot.size && (!write || slot.writable))
        [[likely]] {
      mark(write ? slot.group_written : slot.group_read, offset, size);
      return;
    }
  } else if (address >= thread_stack.begin && address < thread_stack.end) {
    return;
  }
  elsewhere(address, size, write);
}

template <bool write>
[[gnu::always_inline]] inline void touch_aligned(void* address, size_t size) {
  if (reinterpret_cast<uintptr_t>(address) % size != 0 && in_kernel()) [[unlikely]] {
    abandon(
        describe(size, write) + "at an address that is no multiple of " +
        std::to_string(size));
  }
  touch<write>(reinterpret_cast<uintptr_t>(address), size);
}

} // namespace

} // namespace h2o::host

#define H2O_ACCESS(bytes)                                                 \
  void __tsan_read##bytes(void* address) {                                \
    h2o::host::touch_aligned<false>(address, bytes);                      \
  }                                                                       \
  void __tsan_write##bytes(void* address) {                               \
    h2o::host::touch_aligned<true>(address, bytes);                       \
  }                                                                       \
  void __tsan_unaligned_read##bytes(void* address) {                      \
    h2o::host::touch<false>(reinterpret_cast<uintptr_t>(address), bytes); \
  }                                                                       \
  void __tsan_unaligned_write##bytes(void* address) {                     \
    h2o::host::touch<true>(reinterpret_cast<uintptr_t>(address), bytes);  \
  }

extern "C" {
H2O_ACCESS(1)
H2O_ACCESS(2)
H2O_ACCESS(4)
H2O_ACCESS(8)
H2O_ACCESS(16)

void __tsan_init() {
}

void* __tsan_memcpy(void* to, const void* from, size_t size) {
  if (size > 0) {
    h2o::host::touch<false>(reinterpret_cast<uintptr_t>(from), size);
    h2o::host::touch<true>(reinterpret_cast<uintptr_t>(to), size);
  }
  return std::memcpy(to, from, size);
}

void* __tsan_memset(void* to, int value, size_t size) {
  if (size > 0) {
    h2o::host::touch<true>(reinterpret_cast<uintptr_t>(to), size);
  }
  return std::memset(to, value, size);
}
}

// Older compilers' runtime libraries lack what clang calls to round a float to a bfloat.
extern "C" __attribute__((visibility("hidden"))) __bf16 __truncsfbf2(float x) {
  const auto bits = __builtin_bit_cast(uint32_t, x);
  if ((bits & 0x7fffffff) > 0x7f800000) {
    return __builtin_bit_cast(__bf16, static_cast<uint16_t>((bits >> 16) | 0x40));
  }
  const uint32_t to_even = 0x7fff + ((bits >> 16) & 1);
  return __builtin_bit_cast(__bf16, static_cast<uint16_t>((bits + to_even) >> 16));
}
