#include "constants.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "threadgroup.h"

namespace h2o::host {

namespace {
// As a table, for kernels read them in their innermost loops.
constexpr int table_size = 256;
ConstantValue current[table_size];
bool met_undefined = false;

bool is_defined(int index) {
  return index < table_size && current[index].type != ConstantType::none;
}
} // namespace

void use_constants(const ConstantValues& values) {
  std::fill(std::begin(current), std::end(current), ConstantValue{});
  for (const auto& [index, value] : values) {
    if (index < 0 || index >= table_size) {
      throw std::invalid_argument(
          "The host has function constants 0 to 255, not " + std::to_string(index) + ".");
    }
    current[index] = value;
  }
}

bool gate_is_on(const Parameter& parameter) {
  if (parameter.gate_is_on == nullptr) {
    return true;
  }
  met_undefined = false;
  bool on = parameter.gate_is_on();
  return on && !met_undefined;
}

uint32_t constant_bits(int index, ConstantType type, const char* name) noexcept {
  if (is_defined(index) && current[index].type == type) [[likely]] {
    return current[index].bits;
  }
  if (!in_kernel()) {
    met_undefined = true;
    return 0;
  }
  abandon(
      "reads function constant " + std::to_string(index) + " (" + name + "), which is " +
      (is_defined(index) ? "defined with another type" : "not defined"));
}

bool constant_is_defined(int index) noexcept {
  return is_defined(index);
}

} // namespace h2o::host
