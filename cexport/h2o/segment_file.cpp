#include "segment_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <sstream>

#include "posix_files.h"

namespace h2o {

namespace {

/// The size of the header in the format of safetensors, and the header, padded to align
/// the data.
std::string header_of(const SegmentKind& kind, int64_t serial) {
  const SegmentShape& shape = kind.shape;
  std::ostringstream json;
  json << R"({"__metadata__":{"format":")" << kind.format << R"(","segment":")" << serial
       << R"(","session":")" << kind.session << R"("})";
  json << R"(,"rows":{"dtype":"U8","shape":[)" << segment_tokens << "," << shape.heads
       << "," << shape.row_bytes() << R"(],"data_offsets":[0,)" << shape.bytes() << "]}";
  json << "}";
  std::string text = json.str();
  text.append((64 - (8 + text.size()) % 64) % 64, ' ');
  std::string size(8, '\0');
  for (int i = 0; i < 8; i++) {
    size[i] = static_cast<char>(text.size() >> (8 * i));
  }
  return size + text;
}

} // namespace

StoredSegment::StoredSegment(
    const SegmentShape& shape, const char* rows, std::shared_ptr<void> keeper)
    : keeper_(std::move(keeper)),
      rows_(rows),
      token_bytes_(shape.row_bytes()),
      head_bytes_(segment_tokens * shape.row_bytes()) {
}

StoredSegment::StoredSegment(
    const SegmentShape& shape, std::string path, posix::Mapping file, size_t data_begin)
    : path_(std::move(path)),
      file_(std::move(file)),
      rows_(file_.bytes().data() + data_begin),
      token_bytes_(shape.heads * shape.row_bytes()),
      head_bytes_(shape.row_bytes()) {
}

std::string segment_name(int64_t serial) {
  std::string digits = std::to_string(serial);
  return std::string(digits.size() < 6 ? 6 - digits.size() : 0, '0') + digits +
         ".safetensors";
}

int64_t serial_of(const std::string& name) {
  int64_t serial = 0;
  size_t digits = 0;
  for (; digits < name.size() && '0' <= name[digits] && name[digits] <= '9'; digits++) {
    if (digits == 12) {
      return -1;
    }
    serial = 10 * serial + (name[digits] - '0');
  }
  return digits > 0 && name == segment_name(serial) ? serial : -1;
}

int write_segment(
    const std::string& path,
    const SegmentKind& kind,
    int64_t serial,
    const char* rows,
    Digest& digest) {
  const SegmentShape& shape = kind.shape;
  const StoredSegment segment(shape, rows, nullptr);
  std::vector<char> data(static_cast<size_t>(shape.bytes()));
  char* to = data.data();
  for (int token = 0; token < segment_tokens; token++) {
    for (int head = 0; head < shape.heads; head++, to += shape.row_bytes()) {
      std::memcpy(to, segment.row(token, head), static_cast<size_t>(shape.row_bytes()));
    }
  }
  const std::string header = header_of(kind, serial);
  const std::vector<std::string_view> pieces{header, {data.data(), data.size()}};
  Sha256 sum;
  for (std::string_view piece : pieces) {
    sum.add(piece);
  }
  digest = sum.digest();
  return posix::write_whole(path, pieces);
}

int open_segment(
    const std::string& path,
    const SegmentKind& kind,
    int64_t serial,
    const Digest& digest,
    std::shared_ptr<const StoredSegment>& segment) {
  const std::string header = header_of(kind, serial);
  posix::Mapping file;
  if (int error = posix::map(path, file); error != 0) {
    return error == EINVAL ? EBADMSG : error;
  }
  const std::string_view bytes = file.bytes();
  Sha256 sum;
  if (bytes.size() != header.size() + static_cast<size_t>(kind.shape.bytes()) ||
      !bytes.starts_with(header)) {
    return EBADMSG;
  }
  sum.add(bytes);
  if (sum.digest() != digest) {
    return EBADMSG;
  }
  segment =
      std::make_shared<StoredSegment>(kind.shape, path, std::move(file), header.size());
  return 0;
}

namespace {

constexpr int64_t most_heads = 1 << 16;
constexpr int64_t most_row_bytes = 1 << 20;

std::string lines_of(const SegmentManifest& manifest) {
  std::ostringstream text;
  text << "h2o-archive 2\n"
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
  for (const Digest& part : {chain, digest}) {
    next.add({reinterpret_cast<const char*>(part.data()), part.size()});
  }
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
      manifest.chain = from_hex(hex);
    } else if (word == "segment") {
      int64_t serial = -1;
      words >> serial >> hex;
      manifest.segments.push_back({serial, from_hex(hex)});
    }
  }
  // A text that was misread, or has extra content, differs from the text of its manifest.
  return is_sound(manifest) && text_of(manifest) == text;
}

} // namespace h2o
