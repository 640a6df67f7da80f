#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "h2o_host/constants.h"

namespace h2o::host {

struct ConstantValue {
  ConstantType type;
  uint32_t bits;

  bool operator==(const ConstantValue&) const = default;
};

/// A pipeline's function constants by index.
using ConstantValues = std::map<int, ConstantValue>;

/// What the kernels see until the next call.
void use_constants(const ConstantValues& values);

/// Whether a parameter's gate is on; undefined constants leave it off.
bool gate_is_on(const Parameter& parameter);

} // namespace h2o::host
