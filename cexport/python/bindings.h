#pragma once

#include <nanobind/nanobind.h>

namespace h2o::python {

/// Gives a Python module the functions of functions.h; their signatures and
/// docstrings for users are in h2o_py/fast.py.
void bind(nanobind::module_& m);

/// Archive and recall.
void bind_recall(nanobind::module_& m);

/// LayerCache, and what its layers choose together.
void bind_layer_cache(nanobind::module_& m);

/// The archive in files: SegmentFolder and the functions of archive_folders.h.
void bind_archive_files(nanobind::module_& m);

} // namespace h2o::python
