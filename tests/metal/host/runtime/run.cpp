// Runs dispatches on copies of what they bind, and finds races between them.

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "dispatch.h"
#include "memory.h"

namespace h2o::host {

namespace {

std::mutex results_mutex;
std::vector<std::string> errors;
std::vector<DispatchCount> counts;
Order next_order;

/// Where the bindings of the running dispatch are.
struct Placed {
  int slot;
  int64_t offset; // of the binding, in the slot
};
const Dispatch* current = nullptr;
std::map<int, Placed> placed;

/// What an earlier dispatch touched of an allocation.
struct Touched {
  int stream;
  uint64_t epoch;
  std::string kernel;
  std::shared_ptr<Allocation> allocation;
  std::vector<uint64_t> read, written;
};
std::vector<Touched> touched;

void add_error(const std::string& error) {
  std::lock_guard lock(results_mutex);
  errors.push_back(error);
}

std::string buffer_name(int index) {
  const Signature& signature = current->pipeline->kernel->signature;
  std::string name;
  for (int i = 0; i < signature.count; ++i) {
    if (signature.parameters[i].index == index) {
      name = signature.parameters[i].name;
    }
  }
  return "buffer " + std::to_string(index) + " (" + name + ")";
}

/// Copies what is bound into slots, an array once however often it is bound.
void place(const Dispatch& dispatch) {
  placed.clear();
  for (Slot& slot : slots().slots) {
    slot.size = 0;
  }
  std::map<const void*, int> slot_of_data;
  for (const auto& [index, binding] : dispatch.bindings) {
    if (!binding.is_array()) {
      slots().open(index, binding.bytes.size(), false);
      std::memcpy(slots().data(index), binding.bytes.data(), binding.bytes.size());
      placed[index] = {index, 0};
      continue;
    }
    auto [entry, is_new] = slot_of_data.emplace(binding.data.get(), index);
    placed[index] = {entry->second, binding.offset};
    if (is_new) {
      const bool writable = std::any_of(
          dispatch.bindings.begin(), dispatch.bindings.end(), [&](const auto& entry) {
            return entry.second.data == binding.data && entry.second.output;
          });
      const size_t size = size_of(binding.data);
      slots().open(index, size, writable);
      std::memcpy(slots().data(index), binding.data->buffer().raw_ptr(), size);
    }
  }
}

/// The indices whose arrays are placed at them, with the binding and its slot.
template <typename Function>
void for_each_array(const Dispatch& dispatch, Function function) {
  for (const auto& [index, place] : placed) {
    const Binding& binding = dispatch.bindings.at(index);
    if (place.slot == index && binding.is_array()) {
      function(index, binding, slots().slots[index]);
    }
  }
}

/// Copies written bytes back to the array.
void return_written(const Binding& binding, const char* from, const Slot& slot) {
  char* to = static_cast<char*>(binding.data->buffer().raw_ptr());
  for (size_t byte = 0; byte < slot.size; ++byte) {
    const uint64_t bits = slot.written[byte / 64];
    if (bits == 0) {
      byte |= 63;
    } else if ((bits >> (byte % 64)) & 1) {
      to[byte] = from[byte];
    }
  }
}

std::optional<std::string> finish_group(const GroupLaunch& launch) {
  std::optional<std::string> error;
  for (const auto& [index, place] : placed) {
    if (place.slot != index) {
      continue;
    }
    const int64_t byte = slots().slots[index].finish_group();
    if (byte >= 0 && !error) {
      const uint32_t* group = launch.position.value;
      error = std::string(launch.kernel->name) + ": threadgroup (" +
              std::to_string(group[0]) + ", " + std::to_string(group[1]) + ", " +
              std::to_string(group[2]) + ") and another both touch byte " +
              std::to_string(byte - place.offset) + " of " + buffer_name(index) +
              ", and one of them writes it.";
    }
  }
  return error;
}

/// Threadgroups one by one; the first error ends it.
std::optional<std::string> run_groups(const Dispatch& dispatch) {
  const Kernel& kernel = *dispatch.pipeline->kernel;
  std::vector<void*> addresses;
  for (int i = 0; i < kernel.signature.count; ++i) {
    auto place = placed.find(kernel.signature.parameters[i].index);
    // What is not bound gets an address in a slot of no bytes.
    const int unbound = std::max(kernel.signature.parameters[i].index, 0);
    addresses.push_back(
        place == placed.end() ? slots().data(unbound)
                              : slots().data(place->second.slot) + place->second.offset);
  }
  GroupLaunch launch{};
  launch.kernel = &kernel;
  launch.addresses = addresses.data();
  launch.nominal_size = dispatch.group;
  launch.threads = dispatch.threads;
  {
    std::lock_guard lock(results_mutex);
    launch.order = next_order;
  }
  const uint32_t* groups = launch.groups.value;
  for (int i = 0; i < 3; ++i) {
    const uint32_t size = dispatch.group.value[i];
    launch.groups.value[i] = (dispatch.threads.value[i] + size - 1) / size;
  }
  storage().clear();
  for (uint32_t group : launch.order.of(groups[0] * groups[1] * groups[2], 0)) {
    launch.position = {
        {group % groups[0], group / groups[0] % groups[1], group / groups[0] / groups[1]}};
    for (int i = 0; i < 3; ++i) {
      const uint32_t size = dispatch.group.value[i];
      launch.size.value[i] =
          std::min(size, dispatch.threads.value[i] - launch.position.value[i] * size);
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

/// Enters what a dispatch wrote of an allocation that its evaluation made. Returns the
/// first byte that it read without anybody having written it, or -1.
int64_t enter_and_find_unwritten(
    const Dispatch& dispatch, Allocation& allocation, const Slot& slot) {
  if (allocation.made_in == 0 || allocation.made_in != dispatch.evaluation) {
    return -1;
  }
  allocation.written.resize(slot.written.size());
  int64_t unwritten = -1;
  for (size_t word = 0; word < slot.written.size(); ++word) {
    allocation.written[word] |= slot.written[word];
    const uint64_t missing = slot.read[word] & ~allocation.written[word];
    if (missing != 0 && unwritten < 0) {
      unwritten = static_cast<int64_t>(word) * 64 + std::countr_zero(missing);
    }
  }
  return unwritten;
}

int64_t first_common_byte(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  for (size_t word = 0; word < std::min(a.size(), b.size()); ++word) {
    if (uint64_t bits = a[word] & b[word]; bits != 0) {
      return static_cast<int64_t>(word) * 64 + std::countr_zero(bits);
    }
  }
  return -1;
}

/// Enters what a dispatch touched of an allocation. Adds what it would race with on a
/// device: a dispatch with no barrier in between, one of both writing the same byte.
void enter_and_compare(
    const Dispatch& dispatch, int index, const Binding& binding, const Slot& slot) {
  std::erase_if(touched, [&](const Touched& earlier) {
    return (earlier.stream == dispatch.stream && earlier.epoch != dispatch.epoch) ||
           earlier.allocation->data.expired();
  });
  const std::string name = dispatch.pipeline->kernel->name;
  for (const Touched& earlier : touched) {
    if (earlier.allocation->id != binding.allocation->id ||
        earlier.stream != dispatch.stream) {
      continue;
    }
    const struct {
      int64_t byte;
      const char *now, *before;
    } pairs[] = {
        {first_common_byte(slot.written, earlier.written), "writes", "writes"},
        {first_common_byte(slot.written, earlier.read), "writes", "reads"},
        {first_common_byte(slot.read, earlier.written), "reads", "writes"},
    };
    auto race = std::find_if(
        std::begin(pairs), std::end(pairs), [](auto& p) { return p.byte >= 0; });
    if (race != std::end(pairs)) {
      add_error(
          name + " " + race->now + " byte " + std::to_string(race->byte - binding.offset) +
          " of " + buffer_name(index) + ", which " + earlier.kernel + " " + race->before +
          " with no barrier in between.");
      break;
    }
  }
  touched.push_back(
      {dispatch.stream, dispatch.epoch, name, binding.allocation, slot.read, slot.written});
}

void finish(const Dispatch& dispatch) {
  for_each_array(dispatch, [&](int index, const Binding& binding, const Slot& slot) {
    return_written(binding, slots().data(index), slot);
    const int64_t byte = enter_and_find_unwritten(dispatch, *binding.allocation, slot);
    if (byte >= 0) {
      add_error(
          std::string(dispatch.pipeline->kernel->name) + " reads byte " +
          std::to_string(byte - binding.offset) + " of " + buffer_name(index) +
          ", which nothing has written.");
    }
    enter_and_compare(dispatch, index, binding, slot);
  });
}

void count(const Dispatch& dispatch) {
  DispatchCount result{
      dispatch.pipeline->kernel->name, dispatch.threads, dispatch.group,
      dispatch.barrier_before};
  for_each_array(dispatch, [&](int index, const Binding&, const Slot& slot) {
    result.buffers[index] = slot.traffic;
  });
  std::lock_guard lock(results_mutex);
  counts.push_back(std::move(result));
}

} // namespace

void run_dispatch(const Dispatch& dispatch) {
  ConstantsInUse constants(*dispatch.pipeline);
  current = &dispatch;
  try {
    place(dispatch);
    if (auto error = run_groups(dispatch)) {
      add_error(*error);
    } else {
      finish(dispatch);
    }
    count(dispatch);
  } catch (const std::exception& error) {
    add_error(error.what());
  }
  current = nullptr;
}

void set_order(const Order& order) {
  std::lock_guard lock(results_mutex);
  next_order = order;
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
  auto place = std::find_if(placed.begin(), placed.end(), [&](const auto& entry) {
    return entry.second.slot == slot;
  });
  if (place == placed.end()) {
    const std::string name = buffer_name(slot);
    return {name, "of " + name + ", where nothing is bound"};
  }
  const std::string name = buffer_name(place->first);
  const int64_t start = place->second.offset;
  const int64_t size = static_cast<int64_t>(slots().slots[slot].size) - start;
  return {
      name, "at byte " + std::to_string(offset - start) + " of " + name + ", which has " +
                std::to_string(size)};
}

} // namespace h2o::host
