// What can be dispatched, and whether what is bound is what a kernel declares.

#include "dispatch.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <sstream>
#include <stdexcept>

namespace h2o::host {

namespace {

std::map<std::string, Kernel>& registry() {
  static std::map<std::string, Kernel> kernels;
  return kernels;
}

std::vector<Library>& libraries() {
  static std::vector<Library> all;
  return all;
}

std::recursive_mutex running;
// As a table, for kernels read them in their innermost loops.
std::array<ConstantValue, 256> constants;
bool met_undefined = false;

/// Whether a parameter's gate is on; undefined constants leave it off.
bool gate_is_on(const Parameter& parameter) {
  if (parameter.gate_is_on == nullptr) {
    return true;
  }
  met_undefined = false;
  const bool on = parameter.gate_is_on();
  return on && !met_undefined;
}

template <typename... Parts>
[[noreturn]] void refuse(const Dispatch& dispatch, const Parts&... parts) {
  std::ostringstream message;
  message << dispatch.pipeline->kernel->name << ": ";
  (message << ... << parts);
  throw std::invalid_argument(message.str());
}

void check_parameter(
    const Dispatch& dispatch, const Parameter& parameter, const ArgumentType& type) {
  auto bound = dispatch.bindings.find(parameter.index);
  const bool on = gate_is_on(parameter);
  if (bound == dispatch.bindings.end()) {
    if (on) {
      refuse(
          dispatch, "nothing is bound at index ", parameter.index, " (", parameter.name,
          ").");
    }
    return;
  }
  if (!on) {
    refuse(
        dispatch, "index ", parameter.index, " (", parameter.name,
        ") is bound, but the function constant ", parameter.gate, " is off.");
  }
  const Binding& binding = bound->second;
  if (binding.is_array()) {
    const int64_t available = static_cast<int64_t>(size_of(binding.data)) - binding.offset;
    if (type.reference && available < static_cast<int64_t>(type.size)) {
      refuse(
          dispatch, "index ", parameter.index, " (", parameter.name, ") takes ", type.size,
          " bytes, but the array has ", available, ".");
    }
    return;
  }
  const size_t bytes = binding.bytes.size();
  if (type.reference && bytes != type.size) {
    refuse(
        dispatch, "index ", parameter.index, " (", parameter.name, ") takes ", type.size,
        " bytes, but ", bytes, " are set.");
  }
  if (type.writable) {
    refuse(
        dispatch, "index ", parameter.index, " (", parameter.name,
        ") is written by the kernel, but bytes are set.");
  }
}

} // namespace

void add_kernel(const Kernel& kernel) {
  registry().emplace(kernel.name, kernel);
}

void add_library(const Library& library) {
  libraries().push_back(library);
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const auto& [name, kernel] : registry()) {
    names.push_back(name);
  }
  return names;
}

const Kernel& find_kernel(const std::string& name) {
  auto entry = registry().find(name);
  if (entry == registry().end()) {
    throw std::invalid_argument("There is no kernel " + name + ".");
  }
  return entry->second;
}

const Library& find_library(const std::string& text) {
  const std::string instance = "template [[host_name(";
  const size_t first = text.rfind(instance);
  if (first == std::string::npos) {
    throw std::invalid_argument("A library without an instance is compiled.");
  }
  for (const auto& library : libraries()) {
    const std::string code = library.text;
    if (code.compare(0, first + instance.size(), text, 0, first + instance.size()) == 0 &&
        code.find(text.substr(first), first) != std::string::npos) {
      return library;
    }
  }
  throw std::invalid_argument(
      "No kernel here was made of the text with " + text.substr(first));
}

ConstantsInUse::ConstantsInUse(const Pipeline& pipeline) : lock_(running) {
  constants.fill({});
  for (const auto& [index, value] : pipeline.constants) {
    constants.at(index) = value;
  }
}

int32_t constant_value(int index, ConstantType type, const char* name) noexcept {
  if (constants[index].type == type) [[likely]] {
    return constants[index].value;
  }
  if (!in_kernel()) {
    met_undefined = true;
    return 0;
  }
  abandon(
      "reads function constant " + std::to_string(index) + " (" + name + "), which is " +
      (constants[index].type == ConstantType::none ? "not defined"
                                                   : "defined with another type"));
}

std::shared_ptr<Allocation> allocation_of(const mx::array& array, uint64_t made_in) {
  static std::mutex mutex;
  static std::map<const mx::array::Data*, std::shared_ptr<Allocation>> all;
  static uint64_t last_id = 0;
  const Data& data = array.data_shared_ptr();
  std::lock_guard lock(mutex);
  auto& entry = all[data.get()];
  if (entry == nullptr || entry->data.lock() != data) {
    entry = std::make_shared<Allocation>(Allocation{++last_id, data, made_in});
    auto allocation = entry;
    std::erase_if(all, [](const auto& entry) { return entry.second->data.expired(); });
    return allocation;
  }
  return entry;
}

size_t size_of(const Data& data) {
  return mx::allocator::allocator().size(data->buffer());
}

void check_bindings(const Dispatch& dispatch) {
  const Kernel& kernel = *dispatch.pipeline->kernel;
  const Signature& signature = kernel.signature;
  const uint32_t* group = dispatch.group.value;
  const size_t threads = size_t(group[0]) * group[1] * group[2];
  if (threads == 0 || threads > static_cast<size_t>(signature.max_threads)) {
    refuse(
        dispatch, "a threadgroup of ", threads, " threads; it takes from 1 to ",
        signature.max_threads, ".");
  }
  ConstantsInUse constants(*dispatch.pipeline);
  for (int i = 0; i < signature.count; ++i) {
    const Parameter& parameter = signature.parameters[i];
    if (parameter.index >= 0) {
      check_parameter(dispatch, parameter, kernel.types[i]);
    } else if (parameter.builtin == Builtin::none) {
      refuse(
          dispatch, "parameter ", parameter.name, " has neither an index nor a meaning.");
    }
  }
  for (const auto& [index, binding] : dispatch.bindings) {
    const bool declared = std::any_of(
        signature.parameters, signature.parameters + signature.count,
        [index = index](const Parameter& parameter) { return parameter.index == index; });
    if (!declared) {
      refuse(dispatch, "index ", index, " is bound, but no parameter has it.");
    }
  }
}

} // namespace h2o::host
