#pragma once

#include <cerrno>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "policy_fields.h"
#include "sha256.h"

/// One segment of an archive in a file of its own: a safetensors file with the arrays keys,
/// values (packed, as bytes), novelty and sums. Everything it says of itself follows from
/// what its reader knows already, so its header is compared and never parsed.
namespace h2o {

struct ArchiveFailure {
  std::string code; ///< one of archive_codes
  std::string path; ///< the file or folder
  int error = 0;    ///< errno, or 0 where the system refused nothing
};

namespace archive_codes {

// At opening.
inline constexpr const char* locked = "archive_locked";       // another has it open
inline constexpr const char* not_empty = "archive_not_empty"; // of another conversation
inline constexpr const char* other = "archive_other";         // not the saved cache's
inline constexpr const char* too_short = "archive_too_short"; // ends before the saved cache
inline constexpr const char* damaged = "archive_damaged";     // a file is not as written
inline constexpr const char* unusable = "archive_unusable";   // the system refused

// Later: the archive is of no more use, and says so once.
inline constexpr const char* not_written = "archive_not_written"; // the system refused
inline constexpr const char* not_read = "archive_not_read"; // refused, or not as written
inline constexpr const char* too_slow = "archive_too_slow"; // more waits than memory allows
inline constexpr const char* forked = "archive_forked";     // used in another process

} // namespace archive_codes

/// Thrown while a folder is opened; what happens later is a value.
class ArchiveError : public std::runtime_error {
 public:
  explicit ArchiveError(ArchiveFailure failure)
      : std::runtime_error(failure.code + ": " + failure.path),
        failure(std::move(failure)) {
  }

  const ArchiveFailure failure;
};

/// errno, but 0 where the system read well and the content is wrong.
inline int unless_content(int error) {
  return error == EBADMSG ? 0 : error;
}

/// Why a folder's lock cannot be had.
[[noreturn]] inline void refuse_lock(const std::string& folder, int error) {
  if (error == EWOULDBLOCK) {
    throw ArchiveError({archive_codes::locked, folder, 0});
  }
  throw ArchiveError({archive_codes::unusable, folder, error});
}

enum class Part { keys, values, novelty };

struct SegmentShape {
  int64_t heads;       ///< B * Hkv
  int64_t key_bytes;   ///< of one packed key
  int64_t value_bytes; ///< of one packed value

  bool operator==(const SegmentShape&) const = default;

  int64_t row_bytes() const {
    return key_bytes + value_bytes;
  }

  /// Bytes of one head's part, token by token.
  int64_t part_bytes(Part part) const;

  /// Where a head's part begins in the data of a file.
  int64_t part_begin(Part part, int64_t head) const;

  /// Bytes of a segment in memory.
  int64_t bytes() const;
};

/// Which segment of which conversation a file is.
struct SegmentIdentity {
  std::string session;
  std::string format; ///< of the rows: letters, digits, ".", "-" and "_"
  int64_t serial;     ///< never used twice in a folder
};

/// What a reader keeps of a segment to know it by.
struct SegmentRecord {
  Digest digest;              ///< of the whole file
  uint64_t data_begin;        ///< behind the header
  std::vector<uint64_t> sums; ///< of each head's keys, then values, then novelty
};

/// "000012.safetensors"
std::string segment_name(int64_t serial);

/// The serial of such a name; -1 for every other name.
int64_t serial_of(const std::string& name);

/// Writes rows [heads, 256, row_bytes], the key of a row before its value, and novelty
/// [heads, 256]; gives 0 or errno.
int write_segment(
    const std::string& folder,
    const SegmentIdentity& identity,
    const SegmentShape& shape,
    const char* rows,
    const char* novelty,
    SegmentRecord& record);

/// Reads all of a file and fills in the sums; EBADMSG where it is not the one whose digest
/// the record has.
int check_segment(
    const std::string& folder,
    const SegmentIdentity& identity,
    const SegmentShape& shape,
    SegmentRecord& record);

/// Reads one part of one head; EBADMSG where it is not what was written.
int read_part(
    const std::string& folder,
    const SegmentIdentity& identity,
    const SegmentShape& shape,
    const SegmentRecord& record,
    Part part,
    int64_t head,
    char* to);

/// The same of a segment in memory.
void copy_part(
    const SegmentShape& shape,
    const char* rows,
    const char* novelty,
    Part part,
    int64_t head,
    char* to);

/// Serials and counts are below; the 12 digits that a file's name may have leave room for more.
constexpr int64_t most_segments = 100'000'000'000;

struct SegmentEntry {
  int64_t serial;
  Digest digest;
};

struct SegmentManifest {
  std::string session; ///< 32 hexadecimal digits, drawn when the folder was made
  std::string format;  ///< as SegmentIdentity's
  SegmentShape shape = {};
  int64_t dropped = 0; ///< older segments, which a byte limit removed
  Digest chain = {};   ///< of those
  std::vector<SegmentEntry> segments;

  /// Of all segments up to listed one `count`: each digest with the chain before it. It
  /// tells whether a folder still holds what it held when a cache was saved.
  Digest chain_at(size_t count) const;
};

/// The chain after one more segment.
Digest chained(const Digest& chain, const Digest& digest);

/// 32 hexadecimal digits of chance.
std::string random_session();

/// Whether a text could be one.
bool is_session(const std::string& text);

/// The file's text, whose last line has a digest of the others.
std::string text_of(const SegmentManifest& manifest);

/// False for every text that `text_of` would not have written.
bool parse_manifest(const std::string& text, SegmentManifest& manifest);

} // namespace h2o
