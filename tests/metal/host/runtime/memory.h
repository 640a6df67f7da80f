#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dispatch.h"

namespace h2o::host {

/// A bit for each byte that was touched, quick to clear where few were.
class TouchedBytes {
 public:
  void resize(size_t bytes);

  /// Of at most 16 bytes.
  [[gnu::always_inline]] void mark(size_t offset, unsigned size) {
    size_t word = offset / 64;
    unsigned bit = offset % 64;
    uint64_t mask = (uint64_t(1) << size) - 1;
    mark_word(word, mask << bit);
    if (bit + size > 64) {
      mark_word(word + 1, mask >> (64 - bit));
    }
  }
  void mark_range(size_t offset, size_t size);

  const std::vector<uint32_t>& words() const {
    return touched_;
  }
  uint64_t bits(uint32_t word) const {
    return bits_[word];
  }
  void clear();

 private:
  [[gnu::always_inline]] void mark_word(size_t word, uint64_t mask) {
    if (bits_[word] == 0) [[unlikely]] {
      touched_.push_back(static_cast<uint32_t>(word));
    }
    bits_[word] |= mask;
  }

  std::vector<uint64_t> bits_;
  std::vector<uint32_t> touched_;
};

/// One allocation, or one block of bytes, as the running dispatch sees it.
struct Slot {
  size_t size = 0;
  bool writable = false;
  Traffic traffic;
  TouchedBytes group_read, group_written;
  std::vector<uint64_t> read, written; // by the whole dispatch

  void open(size_t bytes, bool may_write);

  /// Adds what the threadgroup touched to the dispatch's. Returns the first byte that two
  /// threadgroups touched, one of them writing, or -1.
  int64_t finish_group();
};

/// Slots lie 4 GiB apart, so that an address tells its slot and an index that ran wild
/// meets no other buffer.
class Slots {
 public:
  static constexpr int count = 31;
  static constexpr uint64_t spacing = uint64_t(1) << 32;
  static constexpr uint64_t origin = uint64_t(1) << 30; // room for negative offsets

  Slots();

  char* data(int slot) const {
    return reinterpret_cast<char*>(base_ + spacing * slot + origin);
  }
  /// Makes the slot's memory accessible; what it held is undefined.
  void open(int slot, size_t bytes, bool may_write);

  bool holds(uintptr_t address) const {
    return address - base_ < spacing * count;
  }
  int slot_of(uintptr_t address) const {
    return static_cast<int>((address - base_) / spacing);
  }
  /// Of an address in a slot, from where its data begins.
  int64_t offset_of(uintptr_t address) const {
    return static_cast<int64_t>((address - base_) % spacing) - static_cast<int64_t>(origin);
  }

  Slot slots[count];

 private:
  uintptr_t base_;
  size_t accessible_[count] = {};
};

/// Null until the first dispatch.
extern Slots* all_slots;

Slots& slots();

/// Threadgroup variables of the running threadgroup, each behind a gap.
class Storage {
 public:
  static constexpr size_t capacity = 64 << 10;
  static constexpr size_t metal_limit = 32 << 10;
  static constexpr size_t gap = 256;

  /// Forgets the variables: another kernel's come.
  void clear();
  /// Makes all of them unwritten.
  void restart();
  void* variable(int ordinal, const char* name, size_t size, size_t alignment);

  bool holds(uintptr_t address) const {
    return address - reinterpret_cast<uintptr_t>(bytes_) < capacity;
  }
  /// Of the access; what is wrong with it, or nothing.
  std::string touch(uintptr_t address, size_t size, bool write);

 private:
  enum class Byte : unsigned char { gap, unwritten, written };

  struct Variable {
    const char* name;
    size_t begin;
    size_t size;
  };

  Variable variables_[64] = {};
  size_t used_ = 0;
  Byte states_[capacity] = {};
  alignas(64) char bytes_[capacity];
};

Storage& storage();

} // namespace h2o::host
