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

/// Tokens that a cache received, and key_sum of its ledger before them.
struct ArchivePiece {
  mx::array keys;    // [B, Hkv, L, Dk]
  mx::array values;  // [B, Hkv, L, Dv]
  mx::array key_sum; // float32 [B, Hkv, Dk]
};

/// Consecutive positions of an archive, row by row.
struct ArchiveBlock {
  mx::array rows;    // [B, Hkv, n, row], in the layout of a pool with this format
  mx::array novelty; // float32 [B, Hkv, n]

  int count() const {
    return rows.shape(2);
  }
};

/// Packs the pieces, one chunk or any number of single tokens, behind `tail`, an optional
/// block of less than a segment, into segments and one shorter block. `position` is the
/// position of the first token, and `format` has no ring. Evaluates nothing.
///
/// A token's novelty is computed from its key before rounding. A key with an element that
/// is not finite is packed as zeros with biases of NaN, so that it stays not finite.
std::vector<ArchiveBlock> pack_archive(
    const std::optional<ArchiveBlock>& tail,
    const std::vector<ArchivePiece>& pieces,
    int position,
    const RowFormat& format,
    const Policy& policy,
    mx::StreamOrDevice s);

/// Which segments of an archive are in files, and which of its blocks are being written.
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

  /// Segments that are only in files, in front of the blocks in memory.
  int stored() const {
    return static_cast<int>(stored_.size());
  }

  /// The path of the folder; call it only if there is one.
  const std::string& path() const {
    return folder_->path();
  }

  /// Whether whole blocks go to files.
  bool are_written() const {
    return folder_ && !is_copy_;
  }

  /// If there is a folder: passes evaluated whole blocks to the writer, oldest first, and
  /// drops written blocks from memory, except the newest. If too many bytes wait to be
  /// written, waits for room when `may_wait` is true. Evaluates nothing.
  void keep(
      std::vector<ArchiveBlock>& blocks,
      const RowFormat& format,
      const RowLayout& layout,
      bool may_wait);

  /// Drops the oldest segment, written or not. The archive drops its own blocks in
  /// memory.
  void drop_oldest();

  /// Drops the newest stored segment.
  void drop_newest();

  /// Drops segments that were passed to the writer and are no longer whole blocks in
  /// memory.
  void keep_whole(size_t blocks);

  /// Reads one part of one head of a stored segment into `to`, which has the size of the
  /// part. If reading fails, fills `to` with zeros and sets `failure`.
  void read(int segment, Part part, int64_t head, std::vector<char>& to) const;

  /// Keys of the KV heads [first, last) of the stored segments from `begin` on, in order.
  struct KeyRange {
    int batch, heads;
    int first, last;
    int begin, segments;
  };
  mx::array load_keys(const KeyRange& range, mx::Dtype dtype, int64_t key_bytes) const;

  /// Reads a stored segment back into memory: rows [*heads, 256, row] of `dtype`.
  ArchiveBlock load(
      int segment, const mx::Shape& heads, mx::Dtype dtype, const RowLayout& layout) const;

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
  std::deque<int64_t> handed_; // serials of the blocks in memory that are being written
  mutable bool is_lost_ = false;
};

/// Removes a conversation's archive: the archive's files, and its folders if nothing else
/// is in them. Removes nothing while any layer is open (archive_locked). A missing folder
/// is not an error. Throws ArchiveError.
void delete_archive(const std::string& folder);

/// Removes the archives in `root` that no process has open and whose names are not in
/// `keep`, such as those that a crash left. Returns their names. Throws ArchiveError.
std::vector<std::string> delete_stale_archives(
    const std::string& root, const std::vector<std::string>& keep);

} // namespace h2o
