#pragma once

#include <string>
#include <vector>

#include "segment_file.h"

/// The list of an archive's segments, as the text of one file.
namespace h2o {

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
