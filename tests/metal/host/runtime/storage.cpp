#include "storage.h"

#include <algorithm>
#include <cstring>

#include "h2o_host/kernel.h"
#include "threadgroup.h"

namespace h2o::host {

namespace {
constexpr size_t gap = 256;
}

Storage& storage() {
  static Storage only;
  return only;
}

void Storage::clear() {
  std::fill(states_, states_ + used_, Byte::gap);
  std::fill(std::begin(variables_), std::end(variables_), Variable{});
  count_ = 0;
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

} // namespace h2o::host
