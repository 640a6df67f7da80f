#pragma once

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>

#include "segment_folder.h"

/// What is wrong with an archive in files, and where one ends, as Python has them.
namespace h2o::python {

using FailureTuple = std::tuple<std::string, std::string, int>;  // code, path, errno
using MarkTuple = std::tuple<std::string, int64_t, std::string>; // session, count, chain

inline FailureTuple failure_tuple(const h2o::ArchiveFailure& failure) {
  return {failure.code, failure.path, failure.error};
}

/// What `open` gives, or its failure as a value.
template <class Result, class Open>
std::variant<Result, FailureTuple> or_failure(Open&& open) {
  try {
    return open();
  } catch (const h2o::ArchiveError& error) {
    return failure_tuple(error.failure);
  }
}

inline std::optional<MarkTuple> optional_mark(const std::optional<ArchiveMark>& mark) {
  return mark ? std::optional(MarkTuple{mark->session, mark->count, mark->chain})
              : std::nullopt;
}

inline std::optional<FailureTuple> optional_failure(
    const std::optional<ArchiveFailure>& failure) {
  return failure ? std::optional(failure_tuple(*failure)) : std::nullopt;
}

} // namespace h2o::python
