#pragma once

#include <map>
#include <memory>
#include <Metal/Metal.hpp>
#include <string>
#include <vector>

#include "allocations.h"
#include "constants.h"
#include "kernels.h"

namespace h2o::host {

struct Pipeline {
  const Kernel* kernel;
  std::string hash_name;
  ConstantValues constants;
};

/// What is bound at an index: an array from an offset on, or bytes.
struct Binding {
  Data data;
  std::shared_ptr<Allocation> allocation;
  int64_t offset = 0; // in bytes, from where the allocation begins
  bool output = false;
  std::vector<char> bytes;

  bool is_array() const {
    return data != nullptr;
  }
};

struct Dispatch {
  std::shared_ptr<const Pipeline> pipeline;
  std::map<int, Binding> bindings;
  MTL::Size threads; // of the grid
  MTL::Size group;
  int stream = 0;
  uint64_t epoch = 0;      // counts barriers: what has one epoch may run at once
  uint64_t evaluation = 0; // that it is part of
  bool barrier_before = false;
};

/// How many bytes an allocation has.
size_t size_of(const Data& data);

/// Throws where what is bound is not what the kernel declares.
void check_bindings(const Dispatch& dispatch);

} // namespace h2o::host
