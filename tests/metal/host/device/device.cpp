// The members of MLX's Metal device that dispatching code calls.

#include "mlx/backend/metal/device.h"

#include <stdexcept>

#include "evaluation.h"
#include "recorder.h"

namespace mlx::core::metal {

namespace {

namespace host = h2o::host;

host::ConstantValue read_constant(
    const void* value, MTL::DataType type, NS::UInteger index) {
  using host::ConstantType;
  switch (type) {
    case MTL::DataTypeBool:
      return {ConstantType::boolean, *static_cast<const bool*>(value)};
    case MTL::DataTypeInt:
      return {ConstantType::int32, *static_cast<const uint32_t*>(value)};
    case MTL::DataTypeUInt:
      return {ConstantType::uint32, *static_cast<const uint32_t*>(value)};
    case MTL::DataTypeFloat:
      return {ConstantType::f32, *static_cast<const uint32_t*>(value)};
    case MTL::DataTypeShort:
      return {ConstantType::int16, *static_cast<const uint16_t*>(value)};
    case MTL::DataTypeUShort:
      return {ConstantType::uint16, *static_cast<const uint16_t*>(value)};
    case MTL::DataTypeHalf:
      return {ConstantType::f16, *static_cast<const uint16_t*>(value)};
    default:
      throw std::invalid_argument(
          "Function constant " + std::to_string(index) +
          " has a type that the host lacks.");
  }
}

} // namespace

// Nothing is ever paged out here.
ResidencySets::ResidencySets(MTL::Device*) {
}

ResidencySets::~ResidencySets() = default;

Device::Device()
    : residency_sets_(nullptr), default_library_(new MTL::Library), arch_gen_(16) {
  default_library_->name = "mlx";
  arch_ = host::architecture();
  switch (arch_.back()) {
    case 'p':
      max_ops_per_buffer_ = 20;
      max_mb_per_buffer_ = 40;
      break;
    case 'g':
      max_ops_per_buffer_ = 40;
      max_mb_per_buffer_ = 40;
      break;
    default:
      max_ops_per_buffer_ = 50;
      max_mb_per_buffer_ = 50;
  }
}

Device::~Device() = default;

MTL::Library* Device::get_library(
    const std::string& name,
    const CompileOptions& options,
    const std::function<std::string(void)>& builder) {
  if (options.math_mode != MathMode::Safe) {
    throw std::invalid_argument(name + " is compiled with fast math.");
  }
  auto& library = library_map_[name];
  if (library == nullptr) {
    const host::Library& found = host::find_library(builder());
    library.reset(new MTL::Library);
    library->name = name;
    for (const int* index = found.constants; *index >= 0; ++index) {
      library->constants.push_back(*index);
    }
  }
  return library.get();
}

MTL::ComputePipelineState* Device::get_kernel(
    const std::string& base_name,
    MTL::Library* mtl_lib,
    const std::string& hash_name,
    const MTLFCList& func_consts,
    const std::vector<MTL::Function*>&) {
  host::Pipeline pipeline{&host::find_kernel(base_name), hash_name, {}};
  if (hash_name.empty()) {
    pipeline.hash_name = base_name;
  }
  for (const auto& [value, type, index] : func_consts) {
    pipeline.constants[static_cast<int>(index)] = read_constant(value, type, index);
  }
  for (int index : mtl_lib->constants) {
    if (!pipeline.constants.contains(index)) {
      throw std::invalid_argument(
          base_name + ": function constant " + std::to_string(index) +
          " is declared in its text and has no value.");
    }
  }
  auto& state = library_kernels_[mtl_lib][pipeline.hash_name];
  if (state == nullptr) {
    state.reset(new MTL::ComputePipelineState(
        std::make_shared<const host::Pipeline>(std::move(pipeline))));
  } else if (
      state->pipeline()->kernel != pipeline.kernel ||
      state->pipeline()->constants != pipeline.constants) {
    throw std::logic_error(
        "The hash name " + pipeline.hash_name + " of " + base_name +
        " already stands for other constants or another kernel, which MLX would return.");
  }
  return state.get();
}

MTL::ComputePipelineState* Device::get_kernel(
    const std::string& base_name,
    const std::string& hash_name,
    const MTLFCList& func_consts,
    const std::vector<MTL::Function*>& linked_functions) {
  return get_kernel(
      base_name, default_library_.get(), hash_name, func_consts, linked_functions);
}

Device& device(mlx::core::Device) {
  // One for each architecture, as its name cannot change; they live as long as MLX's.
  static std::map<std::string, Device*> devices;
  auto& found = devices[host::architecture()];
  if (found == nullptr) {
    found = new Device;
  }
  return *found;
}

} // namespace mlx::core::metal
