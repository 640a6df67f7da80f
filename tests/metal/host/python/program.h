#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "mlx/array.h"
#include "mlx/utils.h"

namespace h2o::host {

using Constant32 = std::variant<bool, int, float>;
using Triple = std::tuple<int, int, int>;

/// One dispatch of a program; arrays are given by their names.
struct Step {
  std::string kernel;
  Triple grid; // threadgroups, or threads
  Triple group;
  bool grid_in_threads = false;
  std::map<int, std::string> inputs; // array by index
  std::map<int, std::string> outputs;
  std::map<int, int64_t> offsets;  // of a binding, in bytes
  std::map<int, std::string> data; // bytes by index
  std::map<int, Constant32> constants;
  std::string hash_name; // made of kernel and constants if empty
  bool barrier = false;  // an explicit one before
};

struct ArraySpec {
  mlx::core::Shape shape;
  mlx::core::Dtype dtype;
  std::string shares;       // the input whose buffer it takes, if any
  bool is_temporary = true; // of scratch: whether add_temporary is called
};

/// Dispatches as one eval_gpu would encode them. Returns the outputs; evaluates nothing.
std::map<std::string, mlx::core::array> run_program(
    std::vector<Step> steps,
    const std::map<std::string, mlx::core::array>& inputs,
    const std::map<std::string, ArraySpec>& outputs,
    const std::map<std::string, ArraySpec>& scratch);

} // namespace h2o::host
