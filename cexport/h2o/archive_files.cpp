#include "archive_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "mlx/utils.h"
#include "posix_files.h"
#include "primitives.h"
#include "segment_file.h"

namespace h2o {

namespace {

/// Distinguishes row formats whose rows have the same number of bytes.
std::string format_text(const RowFormat& format) {
  std::ostringstream text;
  text << format.key_bits << "-" << format.group_size << "-" << format.dtype;
  return text.str();
}

} // namespace

ArchiveFiles::ArchiveFiles(std::shared_ptr<SegmentFolder> folder)
    : folder_(std::move(folder)) {
  if (folder_) {
    const auto serials = folder_->serials();
    stored_.assign(serials.begin(), serials.end());
  }
}

ArchiveFiles::ArchiveFiles(const ArchiveFiles& other)
    : folder_(other.folder_),
      is_copy_(true),
      stored_(other.stored_),
      is_lost_(other.is_lost_) {
}

ArchiveFiles& ArchiveFiles::operator=(const ArchiveFiles& other) {
  return *this = ArchiveFiles(other);
}

void ArchiveFiles::keep(
    std::vector<ArchiveBlock>& blocks,
    const RowFormat& format,
    const RowLayout& layout,
    bool may_wait) {
  while (handed_.size() < blocks.size()) {
    const ArchiveBlock& block = blocks[handed_.size()];
    if (block.count() < segment_tokens || !block.rows.is_available() ||
        !block.novelty.is_available()) {
      break;
    }
    const SegmentShape shape{
        int64_t(block.rows.shape(0)) * block.rows.shape(1), layout.key.bytes(),
        layout.value.bytes()};
    auto owner = std::make_shared<ArchiveBlock>(block);
    const int64_t serial = folder_->append(
        format_text(format), shape, owner->rows.data<char>(), owner->novelty.data<char>(),
        owner, may_wait);
    if (serial < 0) {
      return;
    }
    handed_.push_back(serial);
  }
  // The newest block stays in memory, so that a saved archive always shows the shape.
  while (blocks.size() > 1 && !handed_.empty() && folder_->is_written(handed_.front())) {
    stored_.push_back(handed_.front());
    handed_.pop_front();
    blocks.erase(blocks.begin());
  }
}

void ArchiveFiles::drop_oldest() {
  auto& oldest = stored_.empty() ? handed_ : stored_;
  if (oldest.empty()) {
    return; // the dropped block is only in memory
  }
  oldest.pop_front();
  if (!is_copy_) {
    folder_->drop_oldest();
  }
}

void ArchiveFiles::drop_newest() {
  stored_.pop_back();
  if (!is_copy_) {
    folder_->drop_newest();
  }
}

void ArchiveFiles::keep_whole(size_t blocks) {
  while (handed_.size() > blocks) {
    handed_.pop_back();
    folder_->drop_newest();
  }
}

void ArchiveFiles::read(int segment, Part part, int64_t head, std::vector<char>& to) const {
  if (is_lost_ ||
      !folder_->read(stored_[segment], part, head, to.data(), int64_t(to.size()))) {
    is_lost_ = true;
    std::fill(to.begin(), to.end(), 0);
  }
}

mx::array ArchiveFiles::load_keys(
    const KeyRange& range, mx::Dtype dtype, int64_t key_bytes) const {
  mx::array keys = host_array(
      {range.batch, range.last - range.first, segment_tokens * range.segments,
       int(key_bytes / mx::size_of(dtype))},
      dtype);
  std::vector<char> part(segment_tokens * key_bytes);
  char* to = keys.data<char>();
  for (int b = 0; b < range.batch; ++b) {
    for (int head = range.first; head < range.last; ++head) {
      for (int segment = 0; segment < range.segments; ++segment) {
        read(range.begin + segment, Part::keys, b * range.heads + head, part);
        to = std::copy(part.begin(), part.end(), to);
      }
    }
  }
  return keys;
}

ArchiveBlock ArchiveFiles::load(
    int segment, const mx::Shape& heads, mx::Dtype dtype, const RowLayout& layout) const {
  const int64_t key = layout.key.bytes(), value = layout.value.bytes();
  const int row = int((key + value) / mx::size_of(dtype));
  ArchiveBlock block{
      host_array({heads[0], heads[1], segment_tokens, row}, dtype),
      host_array({heads[0], heads[1], segment_tokens}, mx::float32)};
  std::vector<char> keys(segment_tokens * key), values(segment_tokens * value),
      novelty(segment_tokens * sizeof(float));
  char* to = block.rows.data<char>();
  for (int64_t head = 0; head < int64_t(heads[0]) * heads[1]; ++head) {
    read(segment, Part::keys, head, keys);
    read(segment, Part::values, head, values);
    read(segment, Part::novelty, head, novelty);
    for (int token = 0; token < segment_tokens; ++token, to += key + value) {
      std::memcpy(to, &keys[token * key], key);
      std::memcpy(to + key, &values[token * value], value);
    }
    std::memcpy(
        block.novelty.data<char>() + head * int64_t(novelty.size()), novelty.data(),
        novelty.size());
  }
  return block;
}

void ArchiveFiles::check(
    const RowFormat& format, const RowLayout& layout, int64_t heads) const {
  const SegmentShape shape{heads, layout.key.bytes(), layout.value.bytes()};
  if (!stored_.empty() && !folder_->holds(format_text(format), shape)) {
    throw ArchiveError({archive_codes::other, folder_->path(), 0});
  }
}

std::optional<ArchiveMark> ArchiveFiles::mark() const {
  return folder_ ? folder_->mark(stored_.empty() ? -1 : stored_.back()) : std::nullopt;
}

std::optional<ArchiveFailure> ArchiveFiles::failure() const {
  if (!folder_) {
    return std::nullopt;
  }
  auto failed = folder_->failure();
  if (!failed && is_lost_) { // this is a copy, and the original has dropped its segments
    failed = ArchiveFailure{archive_codes::not_read, folder_->path(), 0};
  }
  return failed;
}

namespace {

void check_removal(int error, const std::string& path) {
  if (error != 0 && error != ENOTEMPTY && error != EEXIST) {
    throw ArchiveError({archive_codes::unusable, path, error});
  }
}

std::vector<std::string> names_of(const std::string& folder) {
  std::vector<std::string> names;
  int error = posix::names_in(folder, names);
  check_removal(error == ENOENT || error == ENOTDIR ? 0 : error, folder);
  return names;
}

bool is_layer(const std::string& name) {
  const std::string digits =
      name.substr(std::min(name.size(), std::string("layer-").size()));
  return name.starts_with("layer-") && digits.size() >= 3 && digits.size() <= 9 &&
         digits.find_first_not_of("0123456789") == std::string::npos;
}

bool is_ours(const std::string& name) {
  const std::string final_name =
      name.ends_with(".new") ? name.substr(0, name.size() - 4) : name;
  return final_name == "manifest" || serial_of(final_name) >= 0;
}

/// Whether a folder is the archive of a layer. Each has an empty file as its lock, until it is
/// the last of its files to be deleted. Links are none, because their targets do not belong to
/// the archive.
bool is_archive(const std::string& layer) {
  return posix::check_own_folder(layer) == 0 &&
         (posix::is_empty_file(layer + "/lock") || names_of(layer).empty());
}

std::vector<std::string> layers_of(const std::string& folder) {
  std::vector<std::string> layers;
  for (const std::string& name : names_of(folder)) {
    if (is_layer(name) && is_archive(folder + "/" + name)) {
      layers.push_back(folder + "/" + name);
    }
  }
  return layers;
}

void delete_layer(const std::string& layer) {
  for (const std::string& name : names_of(layer)) {
    if (is_ours(name)) {
      const std::string path = layer + "/" + name;
      check_removal(posix::remove_file(path), path);
    }
  }
  check_removal(posix::remove_file(layer + "/lock"), layer + "/lock");
  check_removal(posix::remove_folder(layer), layer);
}

} // namespace

void delete_archive(const std::string& folder) {
  const std::vector<std::string> layers = layers_of(folder);
  std::vector<posix::File> locks(layers.size());
  for (size_t i = 0; i < layers.size(); i++) {
    if (int error = posix::lock(layers[i] + "/lock", locks[i]); error != 0) {
      refuse_lock(layers[i], error);
    }
  }
  for (const std::string& layer : layers) {
    delete_layer(layer);
  }
  if (!layers.empty()) {
    check_removal(posix::remove_folder(folder), folder);
  }
}

std::vector<std::string> delete_stale_archives(
    const std::string& root, const std::vector<std::string>& keep) {
  std::vector<std::string> deleted;
  for (const std::string& name : names_of(root)) {
    const std::string folder = root + "/" + name;
    if (std::find(keep.begin(), keep.end(), name) != keep.end() ||
        posix::check_own_folder(folder) != 0 || layers_of(folder).empty()) {
      continue;
    }
    try {
      delete_archive(folder);
      deleted.push_back(name);
    } catch (const ArchiveError& error) {
      if (error.failure.code != archive_codes::locked) {
        throw;
      }
    }
  }
  return deleted;
}

} // namespace h2o
