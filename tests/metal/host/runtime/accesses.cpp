// The calls that the compiler puts before every load and store of a kernel.

#include <cstdint>
#include <cstring>

#include "run.h"
#include "slots.h"
#include "storage.h"
#include "threadgroup.h"

namespace h2o::host {

namespace {

std::string describe(size_t size, bool write) {
  return std::string(write ? "writes " : "reads ") + std::to_string(size) +
         (size == 1 ? " byte " : " bytes ");
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
      if (write) {
        slot.traffic.stores++;
        slot.traffic.bytes_stored += size;
        mark(slot.group_written, offset, size);
      } else {
        slot.traffic.loads++;
        slot.traffic.bytes_loaded += size;
        mark(slot.group_read, offset, size);
      }
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

void* __tsan_memmove(void* to, const void* from, size_t size) {
  if (size > 0) {
    h2o::host::touch<false>(reinterpret_cast<uintptr_t>(from), size);
    h2o::host::touch<true>(reinterpret_cast<uintptr_t>(to), size);
  }
  return std::memmove(to, from, size);
}

void* __tsan_memset(void* to, int value, size_t size) {
  if (size > 0) {
    h2o::host::touch<true>(reinterpret_cast<uintptr_t>(to), size);
  }
  return std::memset(to, value, size);
}
}
