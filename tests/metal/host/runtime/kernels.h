#pragma once

#include <string>
#include <vector>

#include "h2o_host/kernel.h"

namespace h2o::host {

std::vector<std::string> kernel_names();

/// Throws where there is none of that name; says which comes nearest.
const Kernel& find_kernel(const std::string& name);

/// The library that was made of a text with one instance; throws if there is none.
const Library& find_library(const std::string& text);

} // namespace h2o::host
