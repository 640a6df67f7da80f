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

/// Tokens as a cache is given them, and its ledger's key_sum from before them.
struct ArchivePiece {
  mx::array keys;    // [B, Hkv, L, Dk]
  mx::array values;  // [B, Hkv, L, Dv]
  mx::array key_sum; // float32 [B, Hkv, Dk]
};

/// Consecutive positions of an archive, row by row.
struct ArchiveBlock {
  mx::array rows;    // [B, Hkv, n, row], as a pool of its format has them
  mx::array novelty; // float32 [B, Hkv, n]

  int count() const {
    return rows.shape(2);
  }
};

/// What follows when tokens come after `tail`, a block of less than a segment if there is
/// one: segments, and one of what is left. `position` is that of the first
/// piece's first token, and `format` has no ring. Nothing is evaluated here.
///
/// A token's novelty is what a ledger would enter for its key as given. A key that is not
/// finite in some element is packed as zeros with biases of NaN, so that it stays not finite.
std::vector<ArchiveBlock> pack_archive(
    const std::optional<ArchiveBlock>& tail,
    const std::vector<ArchivePiece>& pieces,
    int position,
    const RowFormat& format,
    const Policy& policy,
    mx::StreamOrDevice s);

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

/// "FOLDER/layer-007"
std::string layer_folder(const std::string& folder, int layer);

/// Removes a conversation's archive: our files and, where nothing else is in them, the
/// folders. Nothing is removed while any layer is open (archive_locked). A folder that is not
/// there is no error. Throws ArchiveError.
void delete_archive(const std::string& folder);

/// Removes the conversations in `root` that are not open anywhere and whose names are not in
/// `keep`: those of sessions that ended without saying so. Gives their names. Throws
/// ArchiveError.
std::vector<std::string> delete_stale_archives(
    const std::string& root, const std::vector<std::string>& keep);

} // namespace h2o
