#include "segment_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <sstream>

#include "posix_files.h"

namespace h2o {

namespace {

constexpr std::array all_parts = {Part::keys, Part::values, Part::novelty};

/// A checksum that changes whenever one word changes, because each step is one-to-one. It
/// sums four words at a time to be fast, because every read computes it.
uint64_t sum_of(const char* data, int64_t size) {
  constexpr uint64_t prime = 0x9e3779b97f4a7c15;
  uint64_t lanes[4] = {1, 2, 3, 4};
  for (int64_t begin = 0; begin < size; begin += sizeof(lanes)) {
    uint64_t words[4];
    std::memcpy(words, data + begin, sizeof(words));
    for (int i = 0; i < 4; i++) {
      lanes[i] = (lanes[i] ^ words[i]) * prime;
      lanes[i] ^= lanes[i] >> 29;
    }
  }
  uint64_t sum = 0;
  for (uint64_t lane : lanes) {
    sum = (sum ^ lane) * prime;
    sum ^= sum >> 32;
  }
  return sum;
}

size_t sum_index(const SegmentShape& shape, Part part, int64_t head) {
  return static_cast<size_t>(static_cast<int64_t>(part) * shape.heads + head);
}

int64_t sums_bytes(const SegmentShape& shape) {
  return 3 * shape.heads * static_cast<int64_t>(sizeof(uint64_t));
}

/// The size of the header in the format of safetensors, and the header, padded to align
/// the data.
std::string header_of(const SegmentKind& kind, int64_t serial) {
  const SegmentShape& shape = kind.shape;
  std::ostringstream json;
  json << R"({"__metadata__":{"format":")" << kind.format << R"(","segment":")" << serial
       << R"(","session":")" << kind.session << R"("})";
  int64_t begin = 0;
  auto add = [&](const char* name, const char* dtype, const std::string& dims,
                 int64_t bytes) {
    json << ",\"" << name << R"(":{"dtype":")" << dtype << R"(","shape":[)" << dims
         << R"(],"data_offsets":[)" << begin << "," << begin + bytes << "]}";
    begin += bytes;
  };
  const std::string heads = std::to_string(shape.heads);
  const std::string tokens = heads + "," + std::to_string(segment_tokens);
  const int64_t keys = shape.heads * shape.part_bytes(Part::keys);
  const int64_t values = shape.heads * shape.part_bytes(Part::values);
  const int64_t novelty = shape.heads * shape.part_bytes(Part::novelty);
  add("keys", "U8", tokens + "," + std::to_string(shape.key_bytes), keys);
  add("values", "U8", tokens + "," + std::to_string(shape.value_bytes), values);
  add("novelty", "F32", tokens, novelty);
  add("sums", "U64", "3," + heads, sums_bytes(shape));
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

int64_t SegmentShape::part_bytes(Part part) const {
  int64_t bytes = part == Part::keys ? key_bytes : part == Part::values ? value_bytes : 4;
  return segment_tokens * bytes;
}

int64_t SegmentShape::part_begin(Part part, int64_t head) const {
  int64_t begin = head * part_bytes(part);
  for (Part before : all_parts) {
    begin += before < part ? heads * part_bytes(before) : 0;
  }
  return begin;
}

int64_t SegmentShape::bytes() const {
  return part_begin(Part::novelty, heads);
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

void copy_part(
    const SegmentShape& shape,
    const char* rows,
    const char* novelty,
    Part part,
    int64_t head,
    char* to) {
  if (part == Part::novelty) {
    std::memcpy(to, novelty + head * shape.part_bytes(part), shape.part_bytes(part));
    return;
  }
  const int64_t bytes = part == Part::keys ? shape.key_bytes : shape.value_bytes;
  const char* from = rows + head * segment_tokens * shape.row_bytes() +
                     (part == Part::keys ? 0 : shape.key_bytes);
  for (int64_t token = 0; token < segment_tokens; token++) {
    std::memcpy(to + token * bytes, from + token * shape.row_bytes(), bytes);
  }
}

int write_segment(
    const std::string& path,
    const SegmentKind& kind,
    int64_t serial,
    const char* rows,
    const char* novelty,
    SegmentRecord& record) {
  const SegmentShape& shape = kind.shape;
  std::vector<char> data(static_cast<size_t>(shape.bytes()));
  std::vector<uint64_t> sums(static_cast<size_t>(3 * shape.heads));
  for (Part part : all_parts) {
    for (int64_t head = 0; head < shape.heads; head++) {
      char* to = data.data() + shape.part_begin(part, head);
      copy_part(shape, rows, novelty, part, head, to);
      sums[sum_index(shape, part, head)] = sum_of(to, shape.part_bytes(part));
    }
  }
  const std::string header = header_of(kind, serial);
  const std::vector<std::string_view> pieces{
      header,
      {data.data(), data.size()},
      {reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof(uint64_t)}};
  Sha256 digest;
  for (std::string_view piece : pieces) {
    digest.add(piece);
  }
  record = {digest.digest(), header.size(), sums};
  return posix::write_whole(path, pieces);
}

int check_segment(
    const std::string& path,
    const SegmentKind& kind,
    int64_t serial,
    SegmentRecord& record) {
  const SegmentShape& shape = kind.shape;
  const std::string header = header_of(kind, serial);
  record.data_begin = header.size();
  const uint64_t begin = record.data_begin + static_cast<uint64_t>(shape.bytes());
  const uint64_t end = begin + static_cast<uint64_t>(sums_bytes(shape));
  posix::File file;
  uint64_t size = 0;
  int error = posix::open_to_read(path, file);
  error = error != 0 ? error : posix::size_of(file, size);
  if (error != 0 || size != end) {
    return error != 0 ? error : EBADMSG;
  }
  Sha256 digest;
  std::vector<char> block(std::min<uint64_t>(end, 1 << 18));
  record.sums.resize(static_cast<size_t>(3 * shape.heads));
  auto* sums = reinterpret_cast<char*>(record.sums.data());
  for (uint64_t at = 0; at < end;) {
    const uint64_t stop = at < begin ? begin : end;
    const size_t now = std::min<uint64_t>(block.size(), stop - at);
    if (error = posix::read_at(file, at, block.data(), now); error != 0) {
      return error == ENODATA ? EBADMSG : error;
    }
    if (at == 0 && std::memcmp(block.data(), header.data(), header.size()) != 0) {
      return EBADMSG;
    }
    if (at >= begin) {
      std::memcpy(sums + (at - begin), block.data(), now);
    }
    digest.add({block.data(), now});
    at += now;
  }
  return digest.digest() == record.digest ? 0 : EBADMSG;
}

int read_part(
    const std::string& path,
    const SegmentShape& shape,
    const SegmentRecord& record,
    Part part,
    int64_t head,
    char* to) {
  const int64_t size = shape.part_bytes(part);
  posix::File file;
  int error = posix::open_to_read(path, file);
  if (error == 0) {
    const int64_t begin = shape.part_begin(part, head);
    error = posix::read_at(file, record.data_begin + begin, to, size);
  }
  if (error != 0) {
    return error == ENODATA ? EBADMSG : error;
  }
  return sum_of(to, size) == record.sums[sum_index(shape, part, head)] ? 0 : EBADMSG;
}

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
