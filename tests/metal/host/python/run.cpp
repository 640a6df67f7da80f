#include "run.h"

#include <stdexcept>

#include "../device/evaluation.h"
#include "../runtime/run.h"
#include "mlx/transforms.h"

namespace h2o::host {

namespace mx = mlx::core;

std::map<int, mx::array> run(
    Step step,
    const std::map<int, mx::array>& arrays,
    const std::map<int, ArraySpec>& outputs) {
  if (outputs.empty()) {
    throw std::invalid_argument("run: without an output there is nothing to evaluate.");
  }
  std::map<std::string, mx::array> inputs;
  for (const auto& [index, array] : arrays) {
    step.inputs[index] = "input " + std::to_string(index);
    inputs.emplace(step.inputs[index], array);
  }
  std::map<std::string, ArraySpec> specs;
  for (const auto& [index, spec] : outputs) {
    step.outputs[index] = "output " + std::to_string(index);
    specs.emplace(step.outputs[index], spec);
  }
  auto made = run_program({step}, inputs, specs, {});
  std::vector<mx::array> all;
  for (const auto& [name, array] : made) {
    all.push_back(array);
  }
  mx::eval(all);
  auto errors = wait_and_take_errors();
  commit_all(); // who reads results has waited for them
  if (!errors.empty()) {
    throw std::runtime_error(errors.front());
  }
  std::map<int, mx::array> named;
  for (const auto& [index, name] : step.outputs) {
    named.emplace(index, made.at(name));
  }
  return named;
}

std::vector<std::string> wait_and_take_errors() {
  wait_for_all();
  return take_errors();
}

} // namespace h2o::host
