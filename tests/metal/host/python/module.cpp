#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "../device/evaluation.h"
#include "../device/recorder.h"
#include "../runtime/run.h"
#include "mlx/transforms.h"
#include "mlx/utils.h"
#include "run.h"

#if defined(H2O_WITH_CEXPORT)
#include "conversions.h"
#endif

namespace nb = nanobind;
using namespace nb::literals;
namespace mx = mlx::core;

namespace {

std::map<int, std::string> to_bytes(const std::map<int, nb::bytes>& data) {
  std::map<int, std::string> bytes;
  for (const auto& [index, each] : data) {
    bytes.emplace(index, std::string(each.c_str(), each.size()));
  }
  return bytes;
}

h2o::host::Order to_order(const std::variant<std::string, uint64_t>& order) {
  using h2o::host::Order;
  if (const auto* seed = std::get_if<uint64_t>(&order)) {
    return {Order::Kind::shuffled, *seed};
  }
  const auto& name = std::get<std::string>(order);
  if (name != "forward" && name != "reverse") {
    throw std::invalid_argument(name + " is no order: forward, reverse or a seed.");
  }
  return {name == "forward" ? Order::Kind::forward : Order::Kind::reverse, 0};
}

nb::tuple to_tuple(const MTL::Size& size) {
  return nb::make_tuple(size.width, size.height, size.depth);
}

size_t groups(size_t threads, size_t group) {
  return (threads + group - 1) / group;
}

nb::list counters() {
  nb::list all;
  for (const auto& count : h2o::host::counters()) {
    nb::dict buffers;
    for (const auto& buffer : count.buffers) {
      nb::dict each;
      each["name"] = buffer.name;
      each["shares"] = buffer.shares < 0 ? nb::object(nb::none()) : nb::cast(buffer.shares);
      each["loads"] = buffer.traffic.loads;
      each["stores"] = buffer.traffic.stores;
      each["bytes_loaded"] = buffer.traffic.bytes_loaded;
      each["bytes_stored"] = buffer.traffic.bytes_stored;
      each["read"] = buffer.traffic.read;
      each["written"] = buffer.traffic.written;
      buffers[nb::int_(buffer.index)] = each;
    }
    nb::dict each;
    each["kernel"] = count.kernel;
    each["grid"] = nb::make_tuple(
        groups(count.threads.width, count.group.width),
        groups(count.threads.height, count.group.height),
        groups(count.threads.depth, count.group.depth));
    each["threads"] = to_tuple(count.threads);
    each["group"] = to_tuple(count.group);
    each["barrier_before"] = count.barrier_before;
    each["buffers"] = buffers;
    all.append(each);
  }
  return all;
}

} // namespace

NB_MODULE(_metal_host, m) {
  m.doc() = "Metal on the CPU, for tests.";
  nb::module_::import_("mlx.core");

  nb::class_<h2o::host::Step>(m, "Step").def(
      "__init__",
      [](h2o::host::Step* self, std::string kernel, h2o::host::Triple grid,
         h2o::host::Triple group, std::map<int, std::string> inputs,
         std::map<int, std::string> outputs, const std::map<int, nb::bytes>& data,
         std::map<int, h2o::host::Constant32> constants, std::map<int, int64_t> offsets,
         bool grid_in_threads, std::string hash_name, bool barrier) {
        new (self) h2o::host::Step{
            std::move(kernel),
            grid,
            group,
            grid_in_threads,
            std::move(inputs),
            std::move(outputs),
            std::move(offsets),
            to_bytes(data),
            std::move(constants),
            std::move(hash_name),
            barrier};
      },
      "kernel"_a, "grid"_a, "group"_a, nb::kw_only(),
      "inputs"_a = std::map<int, std::string>(), "outputs"_a = std::map<int, std::string>(),
      "data"_a = std::map<int, nb::bytes>(),
      "constants"_a = std::map<int, h2o::host::Constant32>(),
      "offsets"_a = std::map<int, int64_t>(), "grid_in_threads"_a = false,
      "hash_name"_a = "", "barrier"_a = false);

  nb::class_<h2o::host::ArraySpec>(m, "ArraySpec")
      .def(
          "__init__",
          [](h2o::host::ArraySpec* self, const std::vector<int>& shape, mx::Dtype dtype,
             std::string shares, bool is_temporary) {
            new (self) h2o::host::ArraySpec{
                mx::Shape(shape.begin(), shape.end()), dtype, std::move(shares),
                is_temporary};
          },
          "shape"_a, "dtype"_a, nb::kw_only(), "shares"_a = "", "is_temporary"_a = true);

  m.def(
      "run_program", &h2o::host::run_program, "steps"_a, "inputs"_a, "outputs"_a,
      "scratch"_a = std::map<std::string, h2o::host::ArraySpec>());

  m.def(
      "run",
      [](std::string kernel, h2o::host::Triple grid, h2o::host::Triple group,
         const std::map<int, mx::array>& arrays,
         const std::map<int, std::pair<std::vector<int>, mx::Dtype>>& outputs,
         const std::map<int, nb::bytes>& data,
         std::map<int, h2o::host::Constant32> constants, std::map<int, int64_t> offsets,
         bool grid_in_threads, std::string hash_name) {
        std::map<int, h2o::host::ArraySpec> specs;
        for (const auto& [index, spec] : outputs) {
          specs.emplace(
              index, h2o::host::ArraySpec{
                         mx::Shape(spec.first.begin(), spec.first.end()), spec.second});
        }
        return h2o::host::run(
            {std::move(kernel),
             grid,
             group,
             grid_in_threads,
             {},
             {},
             std::move(offsets),
             to_bytes(data),
             std::move(constants),
             std::move(hash_name)},
            arrays, specs);
      },
      "kernel"_a, "grid"_a, "group"_a, "arrays"_a = std::map<int, mx::array>(),
      "outputs"_a = std::map<int, std::pair<std::vector<int>, mx::Dtype>>(),
      "data"_a = std::map<int, nb::bytes>(),
      "constants"_a = std::map<int, h2o::host::Constant32>(),
      "offsets"_a = std::map<int, int64_t>(), nb::kw_only(), "grid_in_threads"_a = false,
      "hash_name"_a = "");

  m.def(
      "take_errors", &h2o::host::wait_and_take_errors,
      nb::call_guard<nb::gil_scoped_release>());
  m.def("commit", &h2o::host::commit_all);
  m.def("commits", &h2o::host::commits);
  m.def("set_architecture", [](const std::string& name) {
    h2o::host::commit_all();
    h2o::host::set_architecture(name);
  });
  m.def("set_order", [](const std::variant<std::string, uint64_t>& order) {
    h2o::host::set_order(to_order(order));
  });
  m.def("counters", &counters);
  m.def("reset_counters", &h2o::host::reset_counters);
  m.def("kernel_names", &h2o::host::kernel_names);

#if defined(H2O_WITH_CEXPORT)
  h2o::python::bind(m);
#endif
}
