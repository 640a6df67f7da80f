#pragma once

#include "program.h"

namespace h2o::host {

/// Runs one kernel to its end: arrays, outputs and bytes by index. Throws what went wrong.
std::map<int, mlx::core::array> run(
    Step step,
    const std::map<int, mlx::core::array>& arrays,
    const std::map<int, ArraySpec>& outputs);

/// What went wrong in all that was dispatched, which it waits for.
std::vector<std::string> wait_and_take_errors();

} // namespace h2o::host
