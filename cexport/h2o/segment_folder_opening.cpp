#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "segment_folder.h"

namespace h2o {

namespace {

constexpr size_t most_manifest_bytes = size_t(64) << 20;

std::string parent_of(const std::string& path) {
  size_t slash = path.find_last_of('/');
  return slash == std::string::npos || slash == 0 ? "" : path.substr(0, slash);
}

int make_folders(const std::string& path) {
  const std::string parent = parent_of(path);
  int error = parent.empty() ? 0 : posix::make_folder(parent);
  error = error != 0 ? error : posix::make_folder(path);
  return error != 0 ? error : posix::check_own_folder(path);
}

[[noreturn]] void refuse_folder(const char* code, const std::string& path, int error = 0) {
  throw ArchiveError({code, path, error});
}

} // namespace

SegmentFolder::SegmentFolder(std::string path, const std::optional<ArchiveMark>& mark)
    : path_(std::move(path)), process_(::getpid()), writer_(SegmentWriter::shared()) {
  if (int error = make_folders(path_); error != 0) {
    refuse_folder(archive_codes::unusable, path_, error);
  }
  if (int error = posix::lock(path_ + "/lock", lock_file_); error != 0) {
    refuse_lock(path_, error);
  }
  if (mark && !is_session(mark->session)) {
    refuse_folder(archive_codes::other, path_);
  }
  std::string text;
  const std::string manifest = path_ + "/manifest";
  const int error = posix::read_text(manifest, most_manifest_bytes, text);
  if (error != 0 && error != ENOENT) {
    refuse_folder(archive_codes::unusable, manifest, error);
  }
  if (error == 0 && !mark) {
    refuse_folder(archive_codes::not_empty, path_);
  }
  if (error == 0) {
    restore(text, *mark);
    remove_leftovers();
  } else if (mark && mark->count > 0) {
    refuse_folder(archive_codes::too_short, path_);
  } else {
    manifest_.session = mark ? mark->session : random_session();
    pass_by_files();
  }
  try {
    writer_.attach();
  } catch (const std::system_error& no_thread) {
    refuse_folder(archive_codes::unusable, path_, no_thread.code().value());
  }
}

void SegmentFolder::restore(const std::string& text, const ArchiveMark& mark) {
  if (!parse_manifest(text, manifest_)) {
    refuse_folder(archive_codes::damaged, path_ + "/manifest");
  }
  if (manifest_.session != mark.session) {
    refuse_folder(archive_codes::other, path_);
  }
  const auto listed = static_cast<int64_t>(manifest_.segments.size());
  const int64_t wanted = mark.count - manifest_.dropped;
  if (wanted < 0 || wanted > listed) {
    refuse_folder(archive_codes::too_short, path_);
  }
  if (to_hex(manifest_.chain_at(static_cast<size_t>(wanted))) != mark.chain) {
    refuse_folder(archive_codes::other, path_);
  }
  check_segments(static_cast<size_t>(wanted));
  // What came after the mark was made stays until something else takes its place.
  for (int64_t i = wanted; i < listed; i++) {
    doomed_.push_back(manifest_.segments[static_cast<size_t>(i)].serial);
  }
  next_serial_ = listed > 0 ? manifest_.segments.back().serial + 1 : 0;
}

void SegmentFolder::check_segments(size_t count) {
  for (size_t i = 0; i < count; i++) {
    const auto& [serial, digest] = manifest_.segments[i];
    auto record = std::make_shared<SegmentRecord>(SegmentRecord{digest, 0, {}});
    const int error = check_segment(
        path_, {manifest_.session, manifest_.format, serial}, manifest_.shape, *record);
    if (error != 0) {
      refuse_folder(
          archive_codes::damaged, path_ + "/" + segment_name(serial),
          unless_content(error));
    }
    segments_[serial].record = std::move(record);
  }
}

/// Without a manifest nothing in the folder is known to be the archive's: files that have a
/// segment's name stay, and new segments get later ones.
void SegmentFolder::pass_by_files() {
  std::vector<std::string> names;
  if (int error = posix::names_in(path_, names); error != 0) {
    refuse_folder(archive_codes::unusable, path_, error);
  }
  for (const std::string& name : names) {
    next_serial_ = std::max(next_serial_, serial_of(name) + 1);
  }
  if (next_serial_ >= most_segments) {
    refuse_folder(archive_codes::not_empty, path_);
  }
}

/// Files that a crash left behind: half written ones, and segments that no manifest lists.
void SegmentFolder::remove_leftovers() {
  std::vector<std::string> names;
  if (int error = posix::names_in(path_, names); error != 0) {
    refuse_folder(archive_codes::unusable, path_, error);
  }
  for (const std::string& name : names) {
    const int64_t serial = serial_of(name);
    const bool temporary =
        name.size() > 4 && name.ends_with(".new") &&
        (name == "manifest.new" || serial_of(name.substr(0, name.size() - 4)) >= 0);
    const bool unlisted =
        serial >= 0 && !segments_.contains(serial) &&
        std::find(doomed_.begin(), doomed_.end(), serial) == doomed_.end();
    if (temporary || unlisted) {
      posix::remove_file(path_ + "/" + name);
    }
  }
}

} // namespace h2o
