#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "policy_rules.h"
#include "posix_files.h"
#include "sha256.h"

/// One segment of an archive in a file: a safetensors file with the array `rows`, the packed
/// keys and values as bytes. A token's rows of all heads lie side by side. The reader knows all
/// that the header must contain, so it compares the header and never parses it.
namespace h2o {

struct ArchiveFailure {
  std::string code;      ///< one of archive_codes
  std::string path = {}; ///< the file or folder
  int error = 0;         ///< errno, or 0 if no call of the system failed
};

namespace archive_codes {

// Errors when a folder is opened.
inline constexpr const char* locked = "archive_locked";       // open in another cache
inline constexpr const char* not_empty = "archive_not_empty"; // has another archive
inline constexpr const char* other = "archive_other";         // not of the saved cache
inline constexpr const char* too_short = "archive_too_short"; // ends before the saved cache
inline constexpr const char* damaged = "archive_damaged";     // a file has changed
inline constexpr const char* unusable = "archive_unusable";   // the system refused access
inline constexpr const char* not_given = "archive_not_given"; // there is no folder to open

// Errors after that. The archive cannot be used any more, and the cache gives one notice.
inline constexpr const char* not_written = "archive_not_written"; // the system refused
inline constexpr const char* not_read = "archive_not_read"; // unreadable, or has changed
inline constexpr const char* too_slow = "archive_too_slow"; // too many bytes wait in memory

} // namespace archive_codes

/// Thrown while a folder is opened; later failures are values.
class ArchiveError : public Refusal {
 public:
  explicit ArchiveError(ArchiveFailure failure)
      : Refusal({failure.code, {{"path", failure.path}, {"error", failure.error}}}),
        failure(std::move(failure)) {
  }

  const ArchiveFailure failure;
};

/// errno, or 0 if the system could read a file but its content is wrong.
inline int unless_content(int error) {
  return error == EBADMSG ? 0 : error;
}

struct SegmentShape {
  int64_t heads;       ///< B * Hkv
  int64_t key_bytes;   ///< of one packed key
  int64_t value_bytes; ///< of one packed value

  bool operator==(const SegmentShape&) const = default;

  int64_t row_bytes() const {
    return key_bytes + value_bytes;
  }

  /// Bytes of a segment in memory.
  int64_t bytes() const {
    return segment_tokens * heads * row_bytes();
  }
};

/// What all segments of an archive have in common.
struct SegmentKind {
  std::string session; ///< see random_session
  std::string format;  ///< of the rows: letters, digits, ".", "-" and "_"
  SegmentShape shape = {};
};

/// A segment that can be read: in memory, where the rows of a head lie side by side, or in a
/// file that had the right digest when it was mapped.
class StoredSegment {
 public:
  /// `rows` [heads, 256, row_bytes] live as long as `keeper`.
  StoredSegment(const SegmentShape& shape, const char* rows, std::shared_ptr<void> keeper);
  StoredSegment(
      const SegmentShape& shape, std::string path, posix::Mapping file, size_t data_begin);

  /// The row of a token in [0, 256): its key, then its value.
  const char* row(int token, int head) const {
    return rows_ + token * token_bytes_ + head * head_bytes_;
  }

  /// Whether the file has not been changed since it was mapped; true in memory. Ask before
  /// reading rows.
  bool is_intact() const {
    return path_.empty() || file_.is_intact(path_);
  }

 private:
  std::string path_;
  posix::Mapping file_;
  std::shared_ptr<void> keeper_;
  const char* rows_;
  int64_t token_bytes_, head_bytes_;
};

/// "000012.safetensors"
std::string segment_name(int64_t serial);

/// The serial of a file name; -1 if it is not the name of a segment.
int64_t serial_of(const std::string& name);

/// Writes rows [heads, 256, row_bytes]. Returns 0 or errno.
int write_segment(
    const std::string& path,
    const SegmentKind& kind,
    int64_t serial,
    const char* rows,
    Digest& digest);

/// Maps a file; EBADMSG if it has another digest.
int open_segment(
    const std::string& path,
    const SegmentKind& kind,
    int64_t serial,
    const Digest& digest,
    std::shared_ptr<const StoredSegment>& segment);

/// Serials and counts must be smaller than this, so that they fit into the 12 digits of a
/// file's name.
constexpr int64_t most_segments = 100'000'000'000;

struct SegmentEntry {
  int64_t serial; ///< never used twice in a folder
  Digest digest;
};

struct SegmentManifest : SegmentKind {
  int64_t dropped = 0; ///< number of older segments, which a byte limit removed
  Digest chain = {};   ///< chain of the dropped segments, see chain_at
  std::vector<SegmentEntry> segments;

  /// The chain of the dropped segments and the first `count` listed ones: a digest of each
  /// segment's digest and the chain before it. It shows whether a folder still has the
  /// content that it had when a cache was saved.
  Digest chain_at(size_t count) const;
};

/// The chain after one more segment.
Digest chained(const Digest& chain, const Digest& digest);

/// 32 random hexadecimal digits.
std::string random_session();

/// Whether a text has the form that random_session returns.
bool is_session(const std::string& text);

/// The text of the manifest's file, whose last line is a digest of all lines before it.
std::string text_of(const SegmentManifest& manifest);

/// Returns false for every text that `text_of` does not write.
bool parse_manifest(const std::string& text, SegmentManifest& manifest);

} // namespace h2o
