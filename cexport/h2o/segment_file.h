#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "policy_fields.h"
#include "sha256.h"

/// One segment of an archive in a file of its own: a safetensors file with the arrays keys,
/// values (packed, as bytes), novelty and sums. Everything it says of itself follows from
/// what its reader knows already, so its header is compared and never parsed.
namespace h2o {

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

} // namespace h2o
