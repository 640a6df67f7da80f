#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "mlx/c/error.h"
#include "mlx/c/h2o_archive_files.h"
#include "segment_folder.h"

/// Between the C structs of h2o_archive_files.h and the core's.
namespace h2o {

inline std::shared_ptr<SegmentFolder> folder_of(const mlx_h2o_archive_folder& folder) {
  return folder.ctx ? *static_cast<std::shared_ptr<SegmentFolder>*>(folder.ctx) : nullptr;
}

template <size_t N>
void set_text(char (&to)[N], const std::string& text) {
  const size_t size = std::min(text.size(), N - 1);
  std::memcpy(to, text.data(), size);
  to[size] = '\0';
}

inline mlx_h2o_archive_problem problem_of(const std::string& code) {
  using namespace archive_codes;
  const std::pair<const char*, mlx_h2o_archive_problem> all[] = {
      {locked, MLX_H2O_ARCHIVE_LOCKED},     {not_empty, MLX_H2O_ARCHIVE_NOT_EMPTY},
      {other, MLX_H2O_ARCHIVE_OTHER},       {too_short, MLX_H2O_ARCHIVE_TOO_SHORT},
      {damaged, MLX_H2O_ARCHIVE_DAMAGED},   {not_written, MLX_H2O_ARCHIVE_NOT_WRITTEN},
      {not_read, MLX_H2O_ARCHIVE_NOT_READ}, {too_slow, MLX_H2O_ARCHIVE_TOO_SLOW},
      {forked, MLX_H2O_ARCHIVE_FORKED}};
  for (const auto& [known, problem] : all) {
    if (code == known) {
      return problem;
    }
  }
  return MLX_H2O_ARCHIVE_UNUSABLE;
}

inline void set_failure(
    mlx_h2o_archive_failure* to, const std::optional<ArchiveFailure>& failure) {
  *to = {};
  if (failure) {
    to->problem = problem_of(failure->code);
    to->error = failure->error;
    set_text(to->path, failure->path);
  }
}

/// Runs `body`: what is wrong with an archive becomes a value, all else an error of mlx-c.
template <class Body>
int with_failure(mlx_h2o_archive_failure* failure, Body body) {
  try {
    set_failure(failure, std::nullopt);
    body();
  } catch (const ArchiveError& error) {
    set_failure(failure, error.failure);
  } catch (const std::exception& error) {
    mlx_error("%s", error.what());
    return 1;
  }
  return 0;
}

inline mlx_h2o_archive_mark mark_of(const ArchiveMark& mark) {
  mlx_h2o_archive_mark result = {};
  set_text(result.session, mark.session);
  set_text(result.chain, mark.chain);
  result.count = mark.count;
  return result;
}

} // namespace h2o
