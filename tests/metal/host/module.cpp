// The Python module: programs of any kernels, and what the host found of all that ran.

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <sstream>

#include "conversions.h"
#include "evaluate.h"
#include "mlx/backend/metal/device.h"
#include "mlx/primitives.h"
#include "mlx/transforms.h"
#include "mlx/utils.h"

namespace nb = nanobind;

namespace {

namespace host = h2o::host;
namespace mx = mlx::core;

using Triple = std::tuple<int, int, int>;

/// One dispatch of a program; arrays are given by their names.
struct Step {
  std::string kernel;
  Triple grid; // threadgroups, or threads
  Triple group;
  bool grid_in_threads = false;
  std::map<int, std::string> inputs; // array by index
  std::map<int, std::string> outputs;
  std::map<int, int64_t> offsets;            // of a binding, in bytes
  std::map<int, std::vector<int32_t>> bytes; // by index, as words
  std::map<int, std::variant<bool, int32_t>> constants;
  std::string hash_name; // made of kernel and constants if empty
  bool barrier = false;  // an explicit one before
};

using Outputs = std::map<std::string, std::tuple<std::vector<int>, mx::Dtype, std::string>>;
using Scratch = std::map<std::string, std::tuple<std::vector<int>, mx::Dtype, bool>>;

MTL::Size to_size(const Triple& size) {
  auto [x, y, z] = size;
  return MTL::Size(x, y, z);
}

mx::Shape to_shape(const std::vector<int>& shape) {
  return {shape.begin(), shape.end()};
}

void encode(
    const Step& step,
    mx::metal::Device& device,
    mx::metal::CommandEncoder& encoder,
    std::map<std::string, mx::array>& arrays) {
  mx::metal::MTLFCList constants;
  std::ostringstream name;
  name << step.kernel;
  for (const auto& [index, value] : step.constants) {
    const auto type = value.index() == 0 ? MTL::DataTypeBool : MTL::DataTypeInt;
    const auto* address = std::visit([](auto& v) -> const void* { return &v; }, value);
    constants.emplace_back(address, type, index);
    name << "_" << index << "_" << value.index() << "_";
    std::visit([&](auto v) { name << v; }, value);
  }
  encoder.set_compute_pipeline_state(device.get_kernel(
      step.kernel, step.hash_name.empty() ? name.str() : step.hash_name, constants));
  auto offset = [&](int index) {
    return step.offsets.contains(index) ? step.offsets.at(index) : 0;
  };
  for (const auto& [index, input] : step.inputs) {
    encoder.set_input_array(arrays.at(input), index, offset(index));
  }
  for (const auto& [index, output] : step.outputs) {
    encoder.set_output_array(arrays.at(output), index, offset(index));
  }
  for (const auto& [index, words] : step.bytes) {
    encoder.set_bytes(words.data(), static_cast<int>(words.size()), index);
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

class Program : public mx::Primitive {
 public:
  Program(
      mx::Stream stream,
      std::vector<Step> steps,
      std::vector<std::string> input_names,
      Outputs outputs,
      Scratch scratch)
      : Primitive(stream),
        steps_(std::move(steps)),
        input_names_(std::move(input_names)),
        outputs_(std::move(outputs)),
        scratch_(std::move(scratch)) {
  }

  void eval_cpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::logic_error("Program runs on the host only.");
  }

  void eval_gpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    auto& encoder = mx::metal::get_command_encoder(stream());
    std::map<std::string, mx::array> arrays;
    for (size_t i = 0; i < inputs.size(); ++i) {
      arrays.emplace(input_names_[i], inputs[i]);
    }
    size_t next = 0;
    for (const auto& [name, spec] : outputs_) {
      mx::array& output = outputs[next++];
      if (const auto& shared = std::get<2>(spec); shared.empty()) {
        output.set_data(mx::allocator::malloc(output.nbytes()));
      } else {
        output.copy_shared_buffer(arrays.at(shared));
      }
      arrays.emplace(name, output);
    }
    for (const auto& [name, spec] : scratch_) {
      const auto& [shape, dtype, is_temporary] = spec;
      mx::array scratch(to_shape(shape), dtype, nullptr, {});
      scratch.set_data(mx::allocator::malloc(scratch.nbytes()));
      if (is_temporary) {
        encoder.add_temporary(scratch);
      }
      arrays.emplace(name, scratch);
    }
    for (const Step& step : steps_) {
      encode(step, mx::metal::device(stream().device), encoder, arrays);
    }
  }

  DEFINE_NAME(Program)

 private:
  std::vector<Step> steps_;
  std::vector<std::string> input_names_;
  Outputs outputs_;
  Scratch scratch_;
};

/// Dispatches as one eval_gpu would encode them. Returns the outputs; evaluates nothing.
std::map<std::string, mx::array> run_program(
    std::vector<Step> steps,
    const std::map<std::string, mx::array>& inputs,
    const Outputs& outputs,
    const Scratch& scratch) {
  std::vector<std::string> input_names;
  std::vector<mx::array> input_arrays;
  for (const auto& [name, array] : inputs) {
    input_names.push_back(name);
    input_arrays.push_back(array);
  }
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  for (const auto& [name, spec] : outputs) {
    shapes.push_back(to_shape(std::get<0>(spec)));
    dtypes.push_back(std::get<1>(spec));
  }
  auto results = mx::array::make_arrays(
      shapes, dtypes,
      std::make_shared<host::OnHost<Program>>(
          mx::default_stream(mx::Device::cpu), std::move(steps), std::move(input_names),
          outputs, scratch),
      input_arrays);
  std::map<std::string, mx::array> named;
  size_t next = 0;
  for (const auto& [name, spec] : outputs) {
    named.emplace(name, results[next++]);
  }
  return named;
}

host::Order to_order(const std::variant<std::string, uint64_t>& order) {
  using host::Order;
  if (const auto* seed = std::get_if<uint64_t>(&order)) {
    return {Order::Kind::shuffled, *seed};
  }
  const bool reverse = std::get<std::string>(order) == "reverse";
  return {reverse ? Order::Kind::reverse : Order::Kind::forward, 0};
}

nb::list counters() {
  nb::list all;
  for (const auto& count : host::counters()) {
    auto groups = [&](int i) {
      return (count.threads.value[i] + count.group.value[i] - 1) / count.group.value[i];
    };
    nb::dict buffers;
    for (const auto& [index, traffic] : count.buffers) {
      buffers[nb::int_(index)] = nb::make_tuple(traffic.read, traffic.written);
    }
    nb::dict entry;
    entry["kernel"] = count.kernel;
    entry["grid"] = nb::make_tuple(groups(0), groups(1), groups(2));
    entry["barrier_before"] = count.barrier_before;
    entry["buffers"] = buffers;
    all.append(entry);
  }
  return all;
}

} // namespace

NB_MODULE(_metal_host, m) {
  using namespace nb::literals;
  m.doc() = "Metal on the CPU, for tests.";
  nb::module_::import_("mlx.core");

  nb::class_<Step>(m, "Step")
      .def(nb::init<>())
      .def_rw("kernel", &Step::kernel)
      .def_rw("grid", &Step::grid)
      .def_rw("group", &Step::group)
      .def_rw("grid_in_threads", &Step::grid_in_threads)
      .def_rw("inputs", &Step::inputs)
      .def_rw("outputs", &Step::outputs)
      .def_rw("offsets", &Step::offsets)
      .def_rw("bytes", &Step::bytes)
      .def_rw("constants", &Step::constants)
      .def_rw("hash_name", &Step::hash_name)
      .def_rw("barrier", &Step::barrier);
  // Outputs by name: shape, dtype and the input whose buffer it takes, or ""; scratch:
  // shape, dtype and whether add_temporary is called.
  m.def("run_program", &run_program, "steps"_a, "inputs"_a, "outputs"_a, "scratch"_a);
  m.def(
      "take_errors",
      [] {
        host::wait_for_all();
        return host::take_errors();
      },
      nb::call_guard<nb::gil_scoped_release>());
  m.def("commit", &host::commit_all);
  m.def("commits", &host::commits);
  m.def("set_architecture", &host::set_architecture);
  m.def("set_order", [](const std::variant<std::string, uint64_t>& order) {
    host::set_order(to_order(order));
  });
  m.def("counters", &counters);
  m.def("reset_counters", &host::reset_counters);
  m.def("kernel_names", &host::kernel_names);
  h2o::python::bind(m);
}
