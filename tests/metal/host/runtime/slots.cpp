#include "slots.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>

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

} // namespace h2o::host
