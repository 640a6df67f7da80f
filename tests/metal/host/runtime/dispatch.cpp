#include "dispatch.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "run.h"

namespace h2o::host {

namespace {

template <typename... Parts>
[[noreturn]] void refuse(const Dispatch& dispatch, const Parts&... parts) {
  std::ostringstream message;
  message << dispatch.pipeline->kernel->name << ": ";
  (message << ... << parts);
  throw std::invalid_argument(message.str());
}

void check_parameter(
    const Dispatch& dispatch, const Parameter& parameter, const ArgumentType& type) {
  auto found = dispatch.bindings.find(parameter.index);
  const bool on = gate_is_on(parameter);
  if (found == dispatch.bindings.end()) {
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
  const Binding& binding = found->second;
  if (binding.is_array()) {
    const int64_t available = static_cast<int64_t>(size_of(binding.data)) - binding.offset;
    if (type.reference && available < static_cast<int64_t>(type.size)) {
      refuse(
          dispatch, "index ", parameter.index, " (", parameter.name, ") takes ", type.size,
          " bytes, but the array has ", available, ".");
    }
    return;
  }
  const size_t given = binding.bytes.size();
  if (type.reference && given != type.size) {
    refuse(
        dispatch, "index ", parameter.index, " (", parameter.name, ") takes ", type.size,
        " bytes, but ", given, " are set.");
  }
  if (type.writable) {
    refuse(
        dispatch, "index ", parameter.index, " (", parameter.name,
        ") is written by the kernel, but bytes are set.");
  }
}

} // namespace

size_t size_of(const Data& data) {
  return mx::allocator::allocator().size(data->buffer());
}

void check_bindings(const Dispatch& dispatch) {
  const Kernel& kernel = *dispatch.pipeline->kernel;
  const Signature& signature = kernel.signature;
  const size_t threads =
      dispatch.group.width * dispatch.group.height * dispatch.group.depth;
  if (threads == 0 || threads > static_cast<size_t>(signature.max_threads)) {
    refuse(
        dispatch, "a threadgroup of ", threads, " threads; it takes from 1 to ",
        signature.max_threads, ".");
  }
  ConstantsInUse constants(dispatch.pipeline->constants);
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
