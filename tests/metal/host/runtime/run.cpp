#include "run.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>

#include "hazards.h"
#include "storage.h"
#include "threadgroup.h"

namespace h2o::host {

namespace {

std::recursive_mutex running_mutex;
std::mutex results_mutex;
std::vector<std::string> errors;
std::vector<DispatchCount> counts;
Order order;

/// Where the bindings of the running dispatch are.
struct Placed {
  int slot;
  int64_t offset; // of the binding, in the slot
};
const Dispatch* current = nullptr;
std::map<int, Placed> placed;

std::string name_of(const Kernel& kernel, int index) {
  for (int i = 0; i < kernel.signature.count; ++i) {
    if (kernel.signature.parameters[i].index == index) {
      return kernel.signature.parameters[i].name;
    }
  }
  return "";
}

std::string buffer_name(int index) {
  return "buffer " + std::to_string(index) + " (" +
         name_of(*current->pipeline->kernel, index) + ")";
}

/// Copies what is bound into slots, an array once however often it is bound.
void place(const Dispatch& dispatch) {
  placed.clear();
  std::map<const void*, int> slot_of_data;
  for (const auto& [index, binding] : dispatch.bindings) {
    if (!binding.is_array()) {
      slots().open(index, binding.bytes.size(), false);
      std::memcpy(slots().data(index), binding.bytes.data(), binding.bytes.size());
      placed[index] = {index, 0};
      continue;
    }
    auto [found, is_new] = slot_of_data.emplace(binding.data.get(), index);
    placed[index] = {found->second, binding.offset};
    if (is_new) {
      const bool writable = std::any_of(
          dispatch.bindings.begin(), dispatch.bindings.end(), [&](const auto& other) {
            return other.second.data == binding.data && other.second.output;
          });
      const size_t size = size_of(binding.data);
      slots().open(index, size, writable);
      std::memcpy(slots().data(index), binding.data->buffer().raw_ptr(), size);
    }
  }
}

/// Copies written bytes back to the arrays.
void return_written(const Dispatch& dispatch) {
  for (const auto& [index, place] : placed) {
    const Binding& binding = dispatch.bindings.at(index);
    if (place.slot != index || !binding.is_array()) {
      continue;
    }
    const Slot& slot = slots().slots[index];
    char* to = static_cast<char*>(binding.data->buffer().raw_ptr());
    const char* from = slots().data(index);
    for (size_t byte = 0; byte < slot.size; ++byte) {
      const uint64_t bits = slot.written[byte / 64];
      if (bits == 0) {
        byte |= 63;
      } else if ((bits >> (byte % 64)) & 1) {
        to[byte] = from[byte];
      }
    }
  }
}

void count(const Dispatch& dispatch) {
  DispatchCount result{
      dispatch.pipeline->kernel->name,
      dispatch.threads,
      dispatch.group,
      dispatch.barrier_before,
      {}};
  for (const auto& [index, place] : placed) {
    if (!dispatch.bindings.at(index).is_array()) {
      continue; // bytes come with the command
    }
    const bool shares = place.slot != index;
    result.buffers.push_back(
        {index, name_of(*dispatch.pipeline->kernel, index), shares ? place.slot : -1,
         shares ? Traffic{} : slots().slots[index].traffic});
  }
  std::lock_guard lock(results_mutex);
  counts.push_back(std::move(result));
}

std::optional<std::string> finish_group(const GroupLaunch& launch) {
  std::optional<std::string> error;
  for (const auto& [index, place] : placed) {
    if (place.slot != index) {
      continue;
    }
    const int64_t byte = slots().slots[index].finish_group();
    if (byte >= 0 && !error) {
      error = std::string(launch.kernel->name) + ": threadgroup (" +
              std::to_string(launch.position.value[0]) + ", " +
              std::to_string(launch.position.value[1]) + ", " +
              std::to_string(launch.position.value[2]) + ") and another both touch byte " +
              std::to_string(byte - place.offset) + " of " + buffer_name(index) +
              ", and one of them writes it.";
    }
  }
  return error;
}

Vector3 to_vector(const MTL::Size& size) {
  return {
      {static_cast<uint32_t>(size.width), static_cast<uint32_t>(size.height),
       static_cast<uint32_t>(size.depth)}};
}

/// Threadgroups one by one; the first error ends it.
std::optional<std::string> run_groups(const Dispatch& dispatch) {
  const Kernel& kernel = *dispatch.pipeline->kernel;
  std::vector<void*> addresses;
  for (int i = 0; i < kernel.signature.count; ++i) {
    auto found = placed.find(kernel.signature.parameters[i].index);
    // What is not bound gets an address in a slot of no bytes.
    const int unbound = std::max(kernel.signature.parameters[i].index, 0);
    addresses.push_back(
        found == placed.end() ? slots().data(unbound)
                              : slots().data(found->second.slot) + found->second.offset);
  }
  GroupLaunch launch{};
  launch.kernel = &kernel;
  launch.addresses = addresses.data();
  launch.nominal_size = to_vector(dispatch.group);
  launch.threads = to_vector(dispatch.threads);
  launch.order = order;
  uint32_t total = 1;
  for (int i = 0; i < 3; ++i) {
    const uint32_t size = launch.nominal_size.value[i];
    launch.groups.value[i] = (launch.threads.value[i] + size - 1) / size;
    total *= launch.groups.value[i];
  }
  storage().clear();
  for (uint32_t group : order.of(total, 0)) {
    const uint32_t* groups = launch.groups.value;
    launch.position = {
        {group % groups[0], group / groups[0] % groups[1], group / groups[0] / groups[1]}};
    for (int i = 0; i < 3; ++i) {
      launch.size.value[i] = std::min(
          launch.nominal_size.value[i],
          launch.threads.value[i] -
              launch.position.value[i] * launch.nominal_size.value[i]);
    }
    storage().restart();
    if (auto error = run_threadgroup(launch)) {
      return error;
    }
    if (auto error = finish_group(launch)) {
      return error;
    }
  }
  return std::nullopt;
}

void report_bytes_without_value_or_order(const Dispatch& dispatch) {
  for (const auto& [index, place] : placed) {
    const Binding& binding = dispatch.bindings.at(index);
    if (place.slot == index && binding.is_array()) {
      const int64_t byte =
          enter_and_find_unwritten(dispatch, *binding.allocation, slots().slots[index]);
      if (byte >= 0) {
        add_error(
            std::string(dispatch.pipeline->kernel->name) + " reads byte " +
            std::to_string(byte - binding.offset) + " of " + buffer_name(index) +
            ", which nothing has written.");
      }
      if (auto race = enter_and_compare(
              dispatch, binding.allocation, buffer_name(index), binding.offset,
              slots().slots[index])) {
        add_error(*race);
      }
    }
  }
}

} // namespace

ConstantsInUse::ConstantsInUse(const ConstantValues& values) : lock_(running_mutex) {
  use_constants(values);
}

void run_dispatch(const Dispatch& dispatch) {
  ConstantsInUse constants(dispatch.pipeline->constants);
  current = &dispatch;
  try {
    for (Slot& slot : slots().slots) {
      slot.size = 0;
    }
    place(dispatch);
    if (auto error = run_groups(dispatch)) {
      add_error(*error);
    } else {
      return_written(dispatch);
      report_bytes_without_value_or_order(dispatch);
    }
    count(dispatch);
  } catch (const std::exception& error) {
    add_error(error.what());
  }
  current = nullptr;
}

void set_order(const Order& given) {
  std::lock_guard lock(running_mutex);
  order = given;
}

void add_error(const std::string& error) {
  std::lock_guard lock(results_mutex);
  errors.push_back(error);
}

std::vector<std::string> take_errors() {
  std::lock_guard lock(results_mutex);
  return std::exchange(errors, {});
}

std::vector<DispatchCount> counters() {
  std::lock_guard lock(results_mutex);
  return counts;
}

void reset_counters() {
  std::lock_guard lock(results_mutex);
  counts.clear();
}

SlotDescription describe_slot(int slot, int64_t offset) {
  auto found = std::find_if(placed.begin(), placed.end(), [&](const auto& entry) {
    return entry.second.slot == slot;
  });
  if (found == placed.end()) {
    const std::string name = buffer_name(slot);
    return {name, "of " + name + ", where nothing is bound"};
  }
  const std::string name = buffer_name(found->first);
  const int64_t start = found->second.offset;
  const int64_t size = static_cast<int64_t>(slots().slots[slot].size) - start;
  return {
      name, "at byte " + std::to_string(offset - start) + " of " + name + ", which has " +
                std::to_string(size)};
}

bool is_module_data(uintptr_t address) {
  static uintptr_t known_page = 0;
  if (address / 4096 == known_page) {
    return true;
  }
  Dl_info here{}, there{};
  const bool is = dladdr(reinterpret_cast<void*>(&is_module_data), &here) != 0 &&
                  dladdr(reinterpret_cast<void*>(address), &there) != 0 &&
                  here.dli_fbase == there.dli_fbase;
  if (is) {
    known_page = address / 4096;
  }
  return is;
}

} // namespace h2o::host
