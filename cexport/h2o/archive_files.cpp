#include "archive_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "cpu_attention.h"
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

VectorLayout sketch_layout(int key_dim, mx::Dtype dtype) {
  const int group = key_dim % sketch_group == 0 ? sketch_group : 32;
  const int bits = key_dim % group == 0 ? sketch_bits : 16;
  return {key_dim, bits, group, cpu::element_of(dtype), 0};
}

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
    std::vector<mx::array>& segments,
    const RowFormat& format,
    const RowLayout& layout,
    bool may_wait) {
  while (handed_.size() < segments.size()) {
    const mx::array& segment = segments[handed_.size()];
    if (!segment.is_available()) {
      break;
    }
    const SegmentShape shape{
        int64_t(segment.shape(0)) * segment.shape(1), layout.key.bytes(),
        layout.value.bytes()};
    auto owner = std::make_shared<mx::array>(segment);
    const int64_t serial =
        folder_->append(format_text(format), shape, owner->data<char>(), owner, may_wait);
    if (serial < 0) {
      return;
    }
    handed_.push_back(serial);
  }
  while (!handed_.empty() && folder_->is_written(handed_.front())) {
    stored_.push_back(handed_.front());
    handed_.pop_front();
    segments.erase(segments.begin());
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

void ArchiveFiles::keep_newest(int count, size_t in_memory) {
  auto drop = [&](std::deque<int64_t>& serials) {
    serials.pop_back();
    if (!is_copy_) {
      folder_->drop_newest();
    }
  };
  while (handed_.size() > in_memory) {
    drop(handed_);
  }
  while (stored() > count) {
    drop(stored_);
  }
}

mx::array ArchiveFiles::load(
    int segment, const Heads& heads, mx::Dtype dtype, const RowLayout& layout) const {
  const auto row_dtype = rows_dtype(layout, dtype);
  auto rows = host_array(
      {heads.batch, heads.kv_heads, segment_tokens, row_width(layout, row_dtype)},
      row_dtype);
  auto stored = is_lost_ ? nullptr : folder_->opened(stored_[segment]);
  if (stored && !stored->is_intact()) {
    fail_reading(segment);
    stored = nullptr;
  }
  if (!stored) {
    is_lost_ = true;
    std::memset(rows.data<char>(), 0, rows.nbytes());
    return rows;
  }
  const int64_t bytes = layout.bytes();
  char* to = rows.data<char>();
  for (int head = 0; head < heads.batch * heads.kv_heads; ++head) {
    for (int token = 0; token < segment_tokens; ++token, to += bytes) {
      std::memcpy(to, stored->row(token, head), bytes);
    }
  }
  return rows;
}

void ArchiveFiles::fail_reading(int segment) const {
  folder_->fail_reading(stored_[segment]);
}

std::vector<std::shared_ptr<const StoredSegment>> ArchiveFiles::opened() const {
  std::vector<std::shared_ptr<const StoredSegment>> segments;
  for (const int64_t serial : stored_) {
    auto segment = is_lost_ ? nullptr : folder_->opened(serial);
    if (!segment) {
      is_lost_ = true;
      return segments;
    }
    segments.push_back(std::move(segment));
  }
  return segments;
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

} // namespace h2o
