#include "mlx/c/h2o_archive_files.h"

#include "archive_files_of.h"
#include "archive_folders.h"

extern "C" int mlx_h2o_archive_folder_open(
    mlx_h2o_archive_folder* res,
    mlx_h2o_archive_failure* failure,
    const char* path,
    const mlx_h2o_archive_mark* mark) {
  res->ctx = nullptr;
  return h2o::with_failure(failure, [&] {
    std::optional<h2o::ArchiveMark> at;
    if (mark != nullptr) {
      at = {mark->session, mark->count, mark->chain};
    }
    auto folder = std::make_shared<h2o::SegmentFolder>(path, at);
    res->ctx = new std::shared_ptr<h2o::SegmentFolder>(std::move(folder));
  });
}

extern "C" int mlx_h2o_archive_folder_free(mlx_h2o_archive_folder folder) {
  delete static_cast<std::shared_ptr<h2o::SegmentFolder>*>(folder.ctx);
  return 0;
}

extern "C" int mlx_h2o_archive_delete(
    mlx_h2o_archive_failure* failure, const char* folder) {
  return h2o::with_failure(failure, [&] { h2o::delete_archive(folder); });
}

extern "C" int mlx_h2o_archives_delete_stale(
    mlx_h2o_archive_failure* failure,
    const char* root,
    const char* const* keep,
    int keep_count) {
  return h2o::with_failure(failure, [&] {
    h2o::delete_stale_archives(root, std::vector<std::string>(keep, keep + keep_count));
  });
}
