#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "archive_pack.h"
#include "segment_folder.h"

namespace h2o {

/// Which segments of an archive are in files, and which of its blocks are on their way.
/// Without a folder there are none. A copy reads what is in files, and writes nothing: what
/// it archives from then on stays in memory.
class ArchiveFiles {
 public:
  ArchiveFiles() = default;
  explicit ArchiveFiles(std::shared_ptr<SegmentFolder> folder);
  ArchiveFiles(const ArchiveFiles& other);
  ArchiveFiles& operator=(const ArchiveFiles& other);
  ArchiveFiles(ArchiveFiles&&) = default;
  ArchiveFiles& operator=(ArchiveFiles&&) = default;

  /// Segments that are only in files, in front of the blocks in memory.
  int stored() const {
    return static_cast<int>(stored_.size());
  }

  /// Of the folder; only where there is one.
  const std::string& path() const {
    return folder_->path();
  }

  /// Whether whole blocks go to files.
  bool are_written() const {
    return folder_ && !is_copy_;
  }

  /// If they are written: hands whole blocks over once they are evaluated, oldest first, and lets those go that
  /// are written, but for the newest. Only chunks may wait for room. Evaluates nothing.
  void keep(
      std::vector<ArchiveBlock>& blocks,
      const RowFormat& format,
      const RowLayout& layout,
      bool may_wait);

  /// Lets the oldest segment go, wherever it is on its way. Those in memory are the archive's.
  void drop_oldest();

  /// Lets the newest stored segment go.
  void drop_newest();

  /// Lets those go that were handed over and are no longer whole blocks in memory.
  void keep_whole(size_t blocks);

  /// One part of one head of a stored segment; zeros where that fails, which `failure` says.
  /// `to` has the size of the part.
  void read(int segment, Part part, int64_t head, std::vector<char>& to) const;

  /// Keys of the KV heads [first, last) of stored segments from `begin` on, one after the
  /// other.
  struct KeyRange {
    int batch, heads;
    int first, last;
    int begin, segments;
  };
  mx::array load_keys(const KeyRange& range, mx::Dtype dtype, int64_t key_bytes) const;

  /// A stored segment in memory again: rows [*heads, 256, row] of `dtype`.
  ArchiveBlock load(
      int segment, const mx::Shape& heads, mx::Dtype dtype, const RowLayout& layout) const;

  /// Throws ArchiveError where stored segments have other rows than these.
  void check(const RowFormat& format, const RowLayout& layout, int64_t heads) const;

  /// Waits until all that was handed over is written; false where the folder has failed.
  bool flush() const {
    return !folder_ || folder_->flush();
  }

  /// Where the stored segments end, for a cache that is saved now.
  std::optional<ArchiveMark> mark() const;

  /// Why the archive is of no more use.
  std::optional<ArchiveFailure> failure() const;

 private:
  std::shared_ptr<SegmentFolder> folder_;
  bool is_copy_ = false;
  std::deque<int64_t> stored_; // serials, oldest first
  std::deque<int64_t> handed_; // those of the blocks in memory that are being written
  mutable bool is_lost_ = false;
};

} // namespace h2o
