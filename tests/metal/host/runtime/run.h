#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "dispatch.h"
#include "order.h"
#include "slots.h"

namespace h2o::host {

/// One kernel runs at a time, and its constants are in use until it is done.
class ConstantsInUse {
 public:
  explicit ConstantsInUse(const ConstantValues& values);

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

/// What a dispatch did to one array (what is set as bytes is not counted); `shares` is an index with the same array, which
/// counts for both, or -1.
struct BufferCount {
  int index;
  std::string name;
  int shares;
  Traffic traffic;
};

struct DispatchCount {
  std::string kernel;
  MTL::Size threads;
  MTL::Size group;
  bool barrier_before;
  std::vector<BufferCount> buffers;
};

/// Runs a dispatch to its end. What is wrong goes to the errors and leaves outputs as they
/// were.
void run_dispatch(const Dispatch& dispatch);

void set_order(const Order& order);
void add_error(const std::string& error);
std::vector<std::string> take_errors();
std::vector<DispatchCount> counters();
void reset_counters();

/// For messages about an address in a slot of the running dispatch.
struct SlotDescription {
  std::string name;    // "buffer 2 (values)"
  std::string outside; // "at byte 512 of buffer 2 (values), which has 512"
};
SlotDescription describe_slot(int slot, int64_t offset);

/// Whether the address is in this module: constants of its code.
bool is_module_data(uintptr_t address);

} // namespace h2o::host
