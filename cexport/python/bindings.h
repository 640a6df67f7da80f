#pragma once

#include <nanobind/nanobind.h>

namespace h2o::python {

/// Gives a Python module the functions of functions.h; their signatures and
/// docstrings for users are in h2o_py/fast.py.
void bind(nanobind::module_& m);

} // namespace h2o::python
