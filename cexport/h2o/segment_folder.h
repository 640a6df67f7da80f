#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "posix_files.h"
#include "segment_file.h"
#include "segment_writer.h"

/// An archive's whole segments in a folder: one file each and a manifest, written in the
/// background under temporary names and renamed, the manifest last. After a crash the folder
/// holds a prefix of the truth. Nothing is synced to the medium, which would wear it: what a
/// power failure tears does not have its digest, and is refused.
namespace h2o {

/// What a saved cache says of the folder that its archive goes on in.
struct ArchiveMark {
  std::string session;
  int64_t count;     ///< segments up to there, those dropped included
  std::string chain; ///< hexadecimal, see SegmentManifest::chain_at
};

class SegmentFolder : private SegmentWork {
 public:
  /// Makes the folder and the one it is in, for their owner only, and locks it. Without a
  /// mark it must hold no archive; with one it is checked from end to end, and continues
  /// where the mark was made. Throws ArchiveError.
  SegmentFolder(std::string path, const std::optional<ArchiveMark>& mark);

  /// Waits for the segment that is being written, and forgets what waits.
  ~SegmentFolder() override;

  SegmentFolder(const SegmentFolder&) = delete;
  SegmentFolder& operator=(const SegmentFolder&) = delete;

  const std::string& path() const {
    return path_;
  }

  /// What a continued folder holds, oldest first: the serials by which segments are read, and
  /// how many were dropped before them.
  std::vector<int64_t> serials() const;
  int64_t dropped() const;

  /// Whether its rows, if there are any, have this format and shape.
  bool holds(const std::string& format, const SegmentShape& shape) const;

  /// Hands one segment over and gives its serial, or -1 where the folder has failed. `rows`
  /// and `novelty` are as write_segment takes them and live as long as `keeper`, which is
  /// released within a later call. Where more than `most_waiting` bytes would wait, a chunk
  /// waits for room; a single step never does, and twice as much makes the folder fail.
  int64_t append(
      const std::string& format,
      const SegmentShape& shape,
      const char* rows,
      const char* novelty,
      std::shared_ptr<void> keeper,
      bool may_wait);

  /// The 256 keys, values or novelties of one head, which take `size` bytes; false where
  /// that failed, and where there is no such head or it has another size.
  bool read(int64_t serial, Part part, int64_t head, char* to, int64_t size);

  /// Removes the oldest segment.
  void drop_oldest();

  /// Removes the newest segment.
  void drop_newest();

  /// Waits until all is written; false where the folder has failed.
  bool flush();

  /// Whether the manifest lists a segment; until then its memory is used.
  bool is_written(int64_t serial);

  /// Where a cache can continue that has the segments up to `newest`, or none (-1): what
  /// comes later is the saver's to keep. None where that segment is gone.
  std::optional<ArchiveMark> mark(int64_t newest) const;

  /// Why the folder is of no more use.
  std::optional<ArchiveFailure> failure() const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  struct Segment {
    /// None while it waits: until the manifest lists it.
    std::shared_ptr<const SegmentRecord> record;
    const char* rows = nullptr;
    const char* novelty = nullptr;
    std::shared_ptr<void> keeper = nullptr;
  };

  bool write_one(Lock& lock) override;
  bool write_segment_file(
      int64_t serial, const Segment& segment, SegmentRecord& record, Lock& lock);
  bool write_manifest(const std::optional<SegmentEntry>& fresh, Lock& lock);
  void restore(const std::string& text, const ArchiveMark& mark);
  void check_segments(size_t count);
  void pass_by_files();
  void remove_leftovers();
  void drop_written();
  void drop(std::map<int64_t, Segment>::iterator segment);
  void forget_waiting();
  void fail(const char* code, const std::string& path, int error);
  bool forked() const;

  const std::string path_;
  const int process_;
  posix::File lock_file_;
  SegmentWriter& writer_;
  SegmentManifest manifest_; ///< its list of segments follows from `segments_`
  std::map<int64_t, Segment> segments_;
  int64_t next_serial_ = 0;
  int64_t to_drop_ = 0;
  bool manifest_is_stale_ = false;
  std::vector<int64_t> doomed_; ///< files to remove once no manifest lists them
  std::vector<std::shared_ptr<void>> released_;
  std::optional<ArchiveFailure> failure_;
};

} // namespace h2o
