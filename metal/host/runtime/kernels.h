#pragma once

#include <string>
#include <vector>

#include "h2o_host/kernel.h"

namespace h2o::host {

std::vector<std::string> kernel_names();

/// Throws where there is none of that name; says which comes nearest.
const Kernel& find_kernel(const std::string& name);

} // namespace h2o::host
