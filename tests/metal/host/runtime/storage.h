#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace h2o::host {

/// Threadgroup variables of the running threadgroup, each behind a gap.
class Storage {
 public:
  static constexpr size_t capacity = 64 << 10;
  static constexpr size_t metal_limit = 32 << 10;

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
  int count_ = 0;
  size_t used_ = 0;
  Byte states_[capacity] = {};
  alignas(64) char bytes_[capacity];
};

Storage& storage();

} // namespace h2o::host
