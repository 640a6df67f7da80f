#include "program.h"

#include <sstream>

#include "evaluate.h"
#include "mlx/allocator.h"
#include "mlx/backend/metal/device.h"
#include "mlx/primitives.h"

namespace h2o::host {

namespace {

namespace mx = mlx::core;

MTL::Size to_size(const Triple& size) {
  auto [x, y, z] = size;
  return MTL::Size(x, y, z);
}

mx::metal::MTLFCList to_list(const std::map<int, Constant32>& constants) {
  mx::metal::MTLFCList list;
  for (const auto& [index, value] : constants) {
    const MTL::DataType types[] = {MTL::DataTypeBool, MTL::DataTypeInt, MTL::DataTypeFloat};
    const void* address =
        std::visit([](const auto& v) -> const void* { return &v; }, value);
    list.emplace_back(address, types[value.index()], index);
  }
  return list;
}

std::string hash_name_of(const Step& step) {
  std::ostringstream name;
  name << step.kernel;
  for (const auto& [index, value] : step.constants) {
    name << "_" << index << "_" << value.index() << "_";
    std::visit([&](auto v) { name << v; }, value);
  }
  return name.str();
}

class Program : public mx::Primitive {
 public:
  Program(
      mx::Stream stream,
      std::vector<Step> steps,
      std::vector<std::string> input_names,
      std::map<std::string, ArraySpec> output_specs,
      std::map<std::string, ArraySpec> scratch)
      : Primitive(stream),
        steps_(std::move(steps)),
        input_names_(std::move(input_names)),
        output_specs_(std::move(output_specs)),
        scratch_(std::move(scratch)) {
  }

  void eval_cpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::logic_error("Program runs on the host only.");
  }

  void eval_gpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    auto& device = mx::metal::device(stream().device);
    auto& encoder = mx::metal::get_command_encoder(stream());
    std::map<std::string, mx::array> arrays;
    for (size_t i = 0; i < inputs.size(); ++i) {
      arrays.emplace(input_names_[i], inputs[i]);
    }
    size_t next = 0;
    for (const auto& [name, spec] : output_specs_) {
      mx::array& output = outputs[next++];
      if (spec.shares.empty()) {
        output.set_data(mx::allocator::malloc(output.nbytes()));
      } else {
        output.copy_shared_buffer(arrays.at(spec.shares));
      }
      arrays.emplace(name, output);
    }
    for (const auto& [name, spec] : scratch_) {
      mx::array scratch(spec.shape, spec.dtype, nullptr, {});
      scratch.set_data(mx::allocator::malloc(scratch.nbytes()));
      if (spec.is_temporary) {
        encoder.add_temporary(scratch);
      }
      arrays.emplace(name, scratch);
    }
    for (const Step& step : steps_) {
      encode(step, device, encoder, arrays);
    }
  }

  DEFINE_NAME(Program)

 private:
  static void encode(
      const Step& step,
      mx::metal::Device& device,
      mx::metal::CommandEncoder& encoder,
      std::map<std::string, mx::array>& arrays) {
    auto* kernel = device.get_kernel(
        step.kernel, step.hash_name.empty() ? hash_name_of(step) : step.hash_name,
        to_list(step.constants));
    encoder.set_compute_pipeline_state(kernel);
    auto offset = [&](int index) {
      auto found = step.offsets.find(index);
      return found == step.offsets.end() ? 0 : found->second;
    };
    for (const auto& [index, name] : step.inputs) {
      encoder.set_input_array(arrays.at(name), index, offset(index));
    }
    for (const auto& [index, name] : step.outputs) {
      encoder.set_output_array(arrays.at(name), index, offset(index));
    }
    for (const auto& [index, bytes] : step.data) {
      encoder.set_bytes(bytes.data(), static_cast<int>(bytes.size()), index);
    }
    if (step.barrier) {
      encoder.barrier();
    }
    if (step.grid_in_threads) {
      encoder.dispatch_threads(to_size(step.grid), to_size(step.group));
    } else {
      encoder.dispatch_threadgroups(to_size(step.grid), to_size(step.group));
    }
  }

  std::vector<Step> steps_;
  std::vector<std::string> input_names_;
  std::map<std::string, ArraySpec> output_specs_;
  std::map<std::string, ArraySpec> scratch_;
};

} // namespace

std::map<std::string, mx::array> run_program(
    std::vector<Step> steps,
    const std::map<std::string, mx::array>& inputs,
    const std::map<std::string, ArraySpec>& outputs,
    const std::map<std::string, ArraySpec>& scratch) {
  std::vector<std::string> input_names;
  std::vector<mx::array> input_arrays;
  for (const auto& [name, array] : inputs) {
    input_names.push_back(name);
    input_arrays.push_back(array);
  }
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  for (const auto& [name, spec] : outputs) {
    shapes.push_back(spec.shape);
    dtypes.push_back(spec.dtype);
  }
  auto made = mx::array::make_arrays(
      shapes, dtypes,
      std::make_shared<OnHost<Program>>(
          mx::default_stream(mx::Device::cpu), std::move(steps), std::move(input_names),
          outputs, scratch),
      input_arrays);
  std::map<std::string, mx::array> named;
  size_t next = 0;
  for (const auto& [name, spec] : outputs) {
    named.emplace(name, made[next++]);
  }
  return named;
}

} // namespace h2o::host
