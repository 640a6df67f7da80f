#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "posix_files.h"
#include "segment_file.h"

/// The whole segments of an archive in a folder: one file per segment, and a manifest.
/// They are written in the background under temporary names and then renamed, the
/// manifest last, so after a crash the folder holds a prefix of the archive. Nothing is
/// synced to the medium, because that wears flash; a file that a power failure damages
/// has the wrong digest and is refused.
namespace h2o {

class SegmentWriter;

/// The place in a folder from which a saved cache continues its archive.
struct ArchiveMark {
  std::string session;
  int64_t count;     ///< segments up to the mark, including dropped ones
  std::string chain; ///< hexadecimal, see SegmentManifest::chain_at
};

class SegmentFolder {
 public:
  /// Creates the folder and its parent, readable by their owner only, and locks the
  /// folder. Without a mark the folder must not contain an archive. With a mark it is
  /// checked completely and continued from the mark. Throws ArchiveError.
  SegmentFolder(std::string path, const std::optional<ArchiveMark>& mark);

  /// Waits for the segment that is being written, and drops waiting ones.
  ~SegmentFolder();

  SegmentFolder(const SegmentFolder&) = delete;
  SegmentFolder& operator=(const SegmentFolder&) = delete;

  const std::string& path() const {
    return path_;
  }

  /// The serials of a continued folder's segments, oldest first.
  std::vector<int64_t> serials() const;

  /// Whether its rows, if there are any, have this format and shape.
  bool holds(const std::string& format, const SegmentShape& shape) const;

  /// Queues one segment for writing and returns its serial, or -1 if the folder has
  /// failed. `rows` have the form that write_segment expects, and live as long as `keeper`,
  /// which a later call releases. If more than `most_waiting` bytes would
  /// wait, the call waits for room if `may_wait` is true. If it is false, the call never
  /// waits, and beyond twice as many bytes the folder fails.
  int64_t append(
      const std::string& format,
      const SegmentShape& shape,
      const char* rows,
      std::shared_ptr<void> keeper,
      bool may_wait);

  /// Opens a segment for reading, and keeps it open. None if reading fails, which fails the
  /// folder.
  std::shared_ptr<const StoredSegment> opened(int64_t serial);

  /// Fails the folder, because a segment that was opened has changed.
  void fail_reading(int64_t serial);

  /// Removes the oldest segment, as soon as it is written.
  void drop_oldest();

  /// Removes the newest segment.
  void drop_newest();

  /// Waits until everything is written; false if the folder has failed.
  bool flush();

  /// Whether the manifest lists a segment; until then it is read from memory.
  bool is_written(int64_t serial);

  /// The mark for a cache that has the segments up to the serial `newest`, or no segment
  /// (-1). The caller must save later tokens itself. Returns none if the segment `newest`
  /// is gone or not written yet.
  std::optional<ArchiveMark> mark(int64_t newest) const;

  /// Why the folder failed.
  std::optional<ArchiveFailure> failure() const;

 private:
  friend SegmentWriter;
  using Lock = std::unique_lock<std::mutex>;

  struct Segment {
    std::optional<Digest> digest; ///< none until the manifest lists the segment
    const char* rows = nullptr;
    std::shared_ptr<void> keeper = nullptr;
    std::shared_ptr<const StoredSegment> opened = nullptr;
  };

  /// Writes one segment, with the writer's lock released meanwhile. Returns whether more
  /// is left to write.
  bool write_one(Lock& lock);
  bool write_segment_file(
      int64_t serial, const Segment& segment, Digest& digest, Lock& lock);
  bool write_manifest(const std::optional<SegmentEntry>& fresh, Lock& lock);
  void restore(const std::string& text, const ArchiveMark& mark);
  void check_segments(size_t count);
  void pass_by_files();
  void remove_leftovers();
  void drop_written();
  void drop(std::map<int64_t, Segment>::iterator segment);
  void forget_waiting();
  void fail(const char* code, const std::string& path, int error);

  std::string path_of(int64_t serial) const {
    return path_ + "/" + segment_name(serial);
  }

  const std::string path_;
  const int process_;
  posix::File lock_file_;
  SegmentWriter& writer_;
  SegmentManifest manifest_; ///< its list of segments is computed from `segments_`
  std::map<int64_t, Segment> segments_;
  int64_t next_serial_ = 0;
  int64_t to_drop_ = 0;
  bool manifest_is_stale_ = false;
  std::vector<int64_t> doomed_; ///< files to remove once no manifest lists them
  std::vector<std::shared_ptr<void>> released_;
  std::optional<ArchiveFailure> failure_;
};

} // namespace h2o
