#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "functions.h"
#include "row_layout.h"
#include "segment_file.h"
#include "segment_folder.h"

namespace h2o {

/// The sizes that all tokens of a cache have in common.
struct Heads {
  int batch = 0, kv_heads = 0, key_dim = 0, value_dim = 0;

  bool operator==(const Heads&) const = default;
};

/// How a key of `key_dim` is sketched: at `sketch_bits` in groups of `sketch_group` elements, or
/// of 32 if that divides the head dim and `sketch_group` does not; otherwise in `dtype`.
VectorLayout sketch_layout(int key_dim, mx::Dtype dtype);

/// Which segments of an archive are in files, and which of those in memory are being written.
/// Without a folder there are none. A copy of the archive reads the files but writes
/// none: tokens that it archives later stay in memory.
class ArchiveFiles {
 public:
  ArchiveFiles() = default;
  explicit ArchiveFiles(std::shared_ptr<SegmentFolder> folder);
  ArchiveFiles(const ArchiveFiles& other);
  ArchiveFiles& operator=(const ArchiveFiles& other);
  ArchiveFiles(ArchiveFiles&&) = default;
  ArchiveFiles& operator=(ArchiveFiles&&) = default;

  /// Segments that are only in files, before those in memory.
  int stored() const {
    return static_cast<int>(stored_.size());
  }

  /// Whether segments go to files.
  bool are_written() const {
    return folder_ && !is_copy_;
  }

  /// If there is a folder: passes evaluated segments [B, Hkv, 256, row] to the writer, oldest
  /// first, and drops written ones from memory. If too many bytes wait to be written, waits for
  /// room when `may_wait` is true. Evaluates nothing.
  void keep(
      std::vector<mx::array>& segments,
      const RowFormat& format,
      const RowLayout& layout,
      bool may_wait);

  /// Drops the oldest segment, written or not. The archive drops its own segments in memory.
  void drop_oldest();

  /// Keeps the oldest `count` segments, of which the newest `in_memory` are in memory.
  void keep_newest(int count, size_t in_memory);

  /// Reads a stored segment back into memory: rows [B, Hkv, 256, row] of `dtype`, or of uint32
  /// if they are packed. If reading fails, returns zeros and sets `failure`.
  mx::array load(
      int segment, const Heads& heads, mx::Dtype dtype, const RowLayout& layout) const;

  /// The stored segments, to read rows of from another thread. If a segment cannot be opened,
  /// sets `failure` and returns fewer.
  std::vector<std::shared_ptr<const StoredSegment>> opened() const;

  /// Makes the archive fail, because a segment that was opened has changed.
  void fail_reading(int segment) const;

  /// Throws ArchiveError if stored segments have rows of another format or shape.
  void check(const RowFormat& format, const RowLayout& layout, int64_t heads) const;

  /// Waits until the writer has written everything; false if the folder has failed.
  bool flush() const {
    return !folder_ || folder_->flush();
  }

  /// Where the stored segments end, to save with a cache.
  std::optional<ArchiveMark> mark() const;

  /// Why the archive failed.
  std::optional<ArchiveFailure> failure() const;

 private:
  std::shared_ptr<SegmentFolder> folder_;
  bool is_copy_ = false;
  std::deque<int64_t> stored_; // serials, oldest first
  std::deque<int64_t> handed_; // serials of those in memory that are being written
  mutable bool is_lost_ = false;
};

} // namespace h2o
