#include "segment_manifest.h"

#include <algorithm>
#include <random>
#include <sstream>

namespace h2o {

namespace {

constexpr int64_t most_heads = 1 << 16;
constexpr int64_t most_row_bytes = 1 << 20;

std::string lines_of(const SegmentManifest& manifest) {
  std::ostringstream text;
  text << "h2o-archive 1\n"
       << "session " << manifest.session << "\n"
       << "format " << manifest.format << "\n"
       << "shape " << manifest.shape.heads << " " << manifest.shape.key_bytes << " "
       << manifest.shape.value_bytes << "\n"
       << "dropped " << manifest.dropped << " " << to_hex(manifest.chain) << "\n";
  for (const SegmentEntry& segment : manifest.segments) {
    text << "segment " << segment.serial << " " << to_hex(segment.digest) << "\n";
  }
  return text.str();
}

bool is_token(const std::string& text, size_t most, const char* allowed) {
  return !text.empty() && text.size() <= most &&
         text.find_first_not_of(allowed) == std::string::npos;
}

bool is_sound(const SegmentManifest& manifest) {
  const SegmentShape& shape = manifest.shape;
  bool good = is_session(manifest.session) &&
              is_token(
                  manifest.format, 64,
                  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") &&
              0 < shape.heads && shape.heads <= most_heads && 0 < shape.key_bytes &&
              shape.key_bytes <= most_row_bytes && 0 < shape.value_bytes &&
              shape.value_bytes <= most_row_bytes && 0 <= manifest.dropped &&
              manifest.dropped < most_segments;
  int64_t before = -1;
  for (const SegmentEntry& segment : manifest.segments) {
    good = good && before < segment.serial && segment.serial < most_segments;
    before = segment.serial;
  }
  return good;
}

} // namespace

Digest chained(const Digest& chain, const Digest& digest) {
  Sha256 next;
  next.add(chain.data(), chain.size());
  next.add(digest.data(), digest.size());
  return next.digest();
}

Digest SegmentManifest::chain_at(size_t count) const {
  Digest at = chain;
  for (size_t i = 0; i < count; i++) {
    at = chained(at, segments[i].digest);
  }
  return at;
}

std::string random_session() {
  std::random_device device;
  std::string text;
  for (int i = 0; i < 32; i++) {
    text += "0123456789abcdef"[device() & 15];
  }
  return text;
}

bool is_session(const std::string& text) {
  return is_token(text, 32, "0123456789abcdef") && text.size() == 32;
}

std::string text_of(const SegmentManifest& manifest) {
  std::string lines = lines_of(manifest);
  return lines + "end " + to_hex(sha256(lines)) + "\n";
}

bool parse_manifest(const std::string& text, SegmentManifest& manifest) {
  manifest = {};
  std::istringstream stream(text);
  std::string line;
  while (std::getline(stream, line)) {
    std::istringstream words(line);
    std::string word, hex;
    words >> word;
    if (word == "session") {
      words >> manifest.session;
    } else if (word == "format") {
      words >> manifest.format;
    } else if (word == "shape") {
      words >> manifest.shape.heads >> manifest.shape.key_bytes >>
          manifest.shape.value_bytes;
    } else if (word == "dropped") {
      words >> manifest.dropped >> hex;
      from_hex(hex, manifest.chain);
    } else if (word == "segment") {
      SegmentEntry segment{};
      words >> segment.serial >> hex;
      from_hex(hex, segment.digest);
      manifest.segments.push_back(segment);
    }
  }
  // Whatever was misread or left out does not come out as it went in.
  return is_sound(manifest) && text_of(manifest) == text;
}

} // namespace h2o
