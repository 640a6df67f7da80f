#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "h2o_host/kernel.h"
#include "mlx/array.h"
#include "threadgroup.h"

namespace h2o::host {

namespace mx = mlx::core;
using Data = std::shared_ptr<mx::array::Data>;

std::vector<std::string> kernel_names();

/// Throws where there is none of that name.
const Kernel& find_kernel(const std::string& name);

/// The library that was made of a text with one instance; throws if there is none.
const Library& find_library(const std::string& text);

struct ConstantValue {
  ConstantType type = ConstantType::none;
  int32_t value = 0;

  bool operator==(const ConstantValue&) const = default;
};

struct Pipeline {
  const Kernel* kernel;
  std::map<int, ConstantValue> constants; // by index
};

/// One kernel runs at a time, and its constants are in use until it is done.
class ConstantsInUse {
 public:
  explicit ConstantsInUse(const Pipeline& pipeline);

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

/// Memory of an array, told from memory that lay at the same address before. On a device
/// an address is not used again until the command buffer is done with it.
struct Allocation {
  uint64_t id;
  std::weak_ptr<mx::array::Data> data;
  /// The evaluation that made it, or 0: there only its dispatches write it, and what none
  /// of them has written holds no value.
  uint64_t made_in;
  std::vector<uint64_t> written = {}; // a bit for each byte
};

/// The same for the same data, for as long as the data lives. `made_in` counts where it is
/// asked for the first time.
std::shared_ptr<Allocation> allocation_of(const mx::array& array, uint64_t made_in = 0);

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
  Vector3 threads; // of the grid
  Vector3 group;
  int stream = 0;
  uint64_t epoch = 0;      // counts barriers: what has one epoch may run at once
  uint64_t evaluation = 0; // that it is part of
  bool barrier_before = false;
};

/// How many bytes an allocation has.
size_t size_of(const Data& data);

/// Throws where what is bound is not what the kernel declares.
void check_bindings(const Dispatch& dispatch);

/// Runs a dispatch to its end. What is wrong goes to the errors and leaves outputs as they
/// were.
void run_dispatch(const Dispatch& dispatch);

/// Distinct bytes of a threadgroup, summed over threadgroups.
struct Traffic {
  uint64_t read = 0;
  uint64_t written = 0;
};

/// What a dispatch did to its arrays, by index; an array that is bound twice counts at the
/// first. What is set as bytes comes with the command and is not counted.
struct DispatchCount {
  std::string kernel;
  Vector3 threads;
  Vector3 group;
  bool barrier_before;
  std::map<int, Traffic> buffers;
};

void set_order(const Order& order);
std::vector<std::string> take_errors();
std::vector<DispatchCount> counters();
void reset_counters();

/// For messages about an address in a slot of the running dispatch.
struct SlotDescription {
  std::string name;    // "buffer 2 (values)"
  std::string outside; // "at byte 512 of buffer 2 (values), which has 512"
};
SlotDescription describe_slot(int slot, int64_t offset);

} // namespace h2o::host
