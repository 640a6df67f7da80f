#include <algorithm>
#include <sstream>

#include "layer_cache.h"

namespace h2o {

namespace saved_headers {

constexpr size_t longest_header = size_t(1) << 20;
constexpr size_t longest_found = 80; ///< bytes of a text that an error repeats
constexpr std::pair<const char*, mx::Dtype> dtypes[] = {
    {"float32", mx::float32}, {"float16", mx::float16}, {"bfloat16", mx::bfloat16}};
constexpr const char* formats[] = {"h2o.dense.2", "h2o.quantized.2", "h2o.mixed.2"};
constexpr const char* of_recall = "recall.";
constexpr const char* of_archive = "archive.";

/// The first line of a header: how the rows are stored, and the version.
const char* format_of(const RowFormat& format) {
  return formats[format.has_ring() ? 2 : format.is_dense() ? 0 : 1];
}

const char* name_of(mx::Dtype dtype) {
  return std::find_if(
             std::begin(dtypes), std::end(dtypes),
             [&](const auto& known) { return known.second == dtype; })
      ->first;
}

/// A line by its name; the text after "=".
using Lines = std::map<std::string, std::string>;

/// Cuts a text between two characters of UTF-8.
std::string shortened(const std::string& text) {
  size_t end = std::min(text.size(), longest_found);
  while (end < text.size() && end > 0 && (text[end] & 0xC0) == 0x80) {
    --end;
  }
  return text.substr(0, end);
}

[[noreturn]] void refuse_line(
    const std::string& name, const std::string& found, const std::string& allowed) {
  throw CacheError(
      {cache_codes::header,
       {{"part", shortened(name)}, {"found", shortened(found)}, {"allowed", allowed}}});
}

// Writing.

struct LineOf {
  std::string operator()(std::monostate) {
    return "";
  }
  std::string operator()(int64_t number) {
    return std::to_string(number);
  }
  std::string operator()(const std::string& words) {
    return words;
  }
  std::string operator()(const Unfit& value) {
    return value.text;
  }
  std::string operator()(const std::vector<int64_t>& numbers) {
    std::string text;
    for (int64_t number : numbers) {
      text += (text.empty() ? "" : ",") + std::to_string(number);
    }
    return text;
  }
  std::string operator()(const Ranges& ranges) {
    std::vector<int64_t> bounds;
    for (auto [begin, end] : ranges) {
      bounds.insert(bounds.end(), {begin, end});
    }
    return (*this)(bounds);
  }
};

class Writer {
 public:
  explicit Writer(const char* format) : text_(format) {
  }

  void add(const std::string& name, const std::string& value) {
    text_ += "\n" + name + "=" + value;
  }

  void add(const std::string& name, int64_t number) {
    add(name, std::to_string(number));
  }

  /// Adds the settings that are not none, except folders.
  void add(
      const std::string& prefix, const Values& values, const std::vector<Field>& fields) {
    for (const auto& field : fields) {
      const Value& value = values.at(field.name);
      if (field.kind != Kind::folder && !std::holds_alternative<std::monostate>(value)) {
        add(prefix + field.name, std::visit(LineOf(), value));
      }
    }
  }

  const std::string& text() const {
    return text_;
  }

 private:
  std::string text_;
};

// Reading.

/// The lines of a header after the first.
Lines lines_in(std::istream& text) {
  Lines lines;
  for (std::string line; std::getline(text, line);) {
    const size_t end = line.find('=');
    if (end == std::string::npos) {
      refuse_line("header", line, "name=value in each line");
    }
    if (!lines.emplace(line.substr(0, end), line.substr(end + 1)).second) {
      refuse_line(line.substr(0, end), line.substr(end + 1), "in one line");
    }
  }
  return lines;
}

/// Removes a line and returns its text.
std::string take(Lines& lines, const std::string& name) {
  auto node = lines.extract(name);
  if (node.empty()) {
    refuse_line(name, "", "in a line of the header");
  }
  return node.mapped();
}

bool is_count(const std::string& text) {
  return !text.empty() && text.size() <= 18 &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

int64_t take_count(Lines& lines, const std::string& name) {
  const std::string text = take(lines, name);
  if (!is_count(text)) {
    refuse_line(name, text, "a count");
  }
  return std::stoll(text);
}

int take_choice(Lines& lines, const std::string& name, std::initializer_list<int> choices) {
  const std::string text = take(lines, name);
  std::string allowed;
  for (int choice : choices) {
    if (text == std::to_string(choice)) {
      return choice;
    }
    allowed += (allowed.empty() ? "" : ", ") + std::to_string(choice);
  }
  refuse_line(name, text, "one of " + allowed);
}

mx::Dtype take_dtype(Lines& lines, const std::string& name) {
  const std::string text = take(lines, name);
  for (const auto& [known, dtype] : dtypes) {
    if (text == known) {
      return dtype;
    }
  }
  refuse_line(name, text, "float32, float16 or bfloat16");
}

std::optional<std::vector<int64_t>> integers_in(const std::string& line) {
  std::vector<int64_t> numbers;
  std::istringstream text(line);
  for (std::string part; std::getline(text, part, ',');) {
    if (!is_count(part)) {
      return std::nullopt;
    }
    numbers.push_back(std::stoll(part));
  }
  return numbers;
}

/// A setting as `complete` takes it; Unfit if the text is no value of this kind.
Value value_in(const std::string& line, Kind kind) {
  switch (kind) {
    case Kind::integer:
    case Kind::bytes:
      return is_count(line) ? Value(int64_t(std::stoll(line)))
                            : Value(Unfit{shortened(line)});
    case Kind::ranges: {
      const auto bounds = integers_in(line);
      if (!bounds || bounds->size() % 2 != 0) {
        return Unfit{shortened(line)};
      }
      Ranges ranges;
      for (size_t i = 0; i < bounds->size(); i += 2) {
        ranges.emplace_back((*bounds)[i], (*bounds)[i + 1]);
      }
      return ranges;
    }
    case Kind::layers: {
      const auto layers = integers_in(line);
      return layers ? Value(*layers) : Value(Unfit{shortened(line)});
    }
    default:
      return shortened(line);
  }
}

/// Removes the lines whose names begin with `prefix`, and returns their settings. Of an
/// unknown setting, the value is its text; `complete` refuses it.
Values take_settings(
    Lines& lines, const std::string& prefix, const std::vector<Field>& fields) {
  Values values;
  for (auto line = lines.lower_bound(prefix);
       line != lines.end() && line->first.starts_with(prefix); line = lines.erase(line)) {
    const std::string name = line->first.substr(prefix.size());
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const auto& field) {
      return field.name == name;
    });
    values[shortened(name)] =
        value_in(line->second, field == fields.end() ? Kind::score : field->kind);
  }
  return values;
}

RowFormat take_format(Lines& lines, const std::string& name) {
  RowFormat format;
  if (name == format_of(format)) {
    return format; // the arrays have the dtype of dense rows
  }
  format.key_bits = take_choice(lines, "key_bits", {4, 8, 16});
  format.value_bits = take_choice(lines, "value_bits", {4, 8, 16});
  format.group_size = take_choice(lines, "group_size", {32, 64, 128});
  format.dtype = take_dtype(lines, "dtype");
  format.recent_bits = take_choice(lines, "recent_bits", {0, 4, 8, 16});
  format.rotated = take_choice(lines, "rotated", {0, 1}) == 1;
  const bool fits = format.has_ring()
                        ? format.key_bits == format.value_bits && !format.rotated
                        : (format.key_bits == 16) == (format.value_bits == 16);
  if (!fits || name != format_of(format)) {
    refuse_line("format", name, "the format of its rows, not of another kind of cache");
  }
  return format;
}

/// Whether a name is "layer-" and at least three digits, as the folder of a layer.
bool is_layer_folder(const std::string& name) {
  constexpr std::string_view start = "layer-";
  return name.starts_with(start) && name.size() >= start.size() + 3 &&
         name.size() <= start.size() + 9 &&
         name.find_first_not_of("0123456789", start.size()) == std::string::npos;
}

std::string last_part(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

/// Removes the lines of an archive; returns it and its current folder, empty for memory.
std::pair<SavedCache::Archive, std::string> take_archive(
    Lines& lines, const std::optional<std::string>& folder) {
  SavedCache::Archive archive;
  archive.first = take_count(lines, "archive.first");
  const int bits = take_choice(lines, "archive.bits", {4, 8, 16});
  archive.format = {
      bits, bits, take_choice(lines, "archive.group_size", {32, 64, 128}),
      take_dtype(lines, "archive.dtype")};
  if (!lines.contains("archive.session")) {
    return {archive, ""};
  }
  if (!folder) {
    throw ArchiveError({archive_codes::not_given});
  }
  std::string own = *folder;
  if (lines.contains("archive.folder")) {
    const std::string name = take(lines, "archive.folder");
    if (!is_layer_folder(name)) {
      refuse_line("archive.folder", name, "the name of a layer's folder");
    }
    own += own.ends_with('/') ? name : "/" + name;
  }
  const std::string session = take(lines, "archive.session");
  const std::string count = take(lines, "archive.count");
  const std::string chain = take(lines, "archive.chain");
  if (!is_count(count)) { // SegmentFolder checks the texts
    throw ArchiveError({archive_codes::other, own});
  }
  archive.mark = {session, std::stoll(count), chain};
  return {archive, own};
}

} // namespace saved_headers

SavedCache saved_cache(
    const std::string& header,
    const std::string& format,
    const std::optional<std::string>& folder) {
  using namespace saved_headers;
  std::string known = format;
  if (known.empty()) {
    for (const char* name : formats) {
      known += (known.empty() ? "" : ", ") + std::string(name);
    }
  }
  std::istringstream text(header.substr(0, longest_header + 1));
  std::string name;
  std::getline(text, name);
  const bool is_known = std::count(std::begin(formats), std::end(formats), name) > 0;
  if (!is_known || (!format.empty() && name != format)) {
    throw CacheError({cache_codes::format, {{"found", shortened(name)}, {"known", known}}});
  }
  if (header.size() > longest_header) {
    refuse_line(
        "header", name + "...", "at most " + std::to_string(longest_header) + " bytes");
  }
  Lines lines = lines_in(text);
  SavedCache saved;
  saved.offset = take_count(lines, "offset");
  saved.length = take_count(lines, "length");
  saved.unattended = take_count(lines, "unattended");
  const RowFormat rows = take_format(lines, name);
  std::string own_folder;
  const auto line = lines.lower_bound(of_archive);
  if (line != lines.end() && line->first.starts_with(of_archive)) {
    std::tie(saved.archive, own_folder) = take_archive(lines, folder);
  }
  for (const auto& [left, value] : lines) {
    if (left.starts_with(of_archive)) {
      refuse_line(left, value, "left out");
    }
  }
  Values of_recall = take_settings(lines, saved_headers::of_recall, recall_fields);
  std::optional<Values> recall;
  if (!of_recall.empty()) {
    recall = std::move(of_recall);
    recall->erase("store");
    if (!own_folder.empty()) {
      (*recall)["store"] = own_folder;
    }
  }
  const Completed settings =
      complete(take_settings(lines, "", policy_fields), std::move(recall));
  saved.config = {policy_of(settings.policy), rows};
  if (rows.has_ring() && !saved.config.evicts()) {
    refuse_line("max_size", std::to_string(saved.config.max_size), "a bound for its ring");
  }
  if (settings.recall) {
    saved.recall = recall_of(*settings.recall);
  }
  return saved;
}

std::string LayerCache::header() {
  using namespace saved_headers;
  const RowFormat& format = config_.format;
  Writer header(format_of(format));
  header.add("offset", offset());
  header.add("length", length());
  header.add("unattended", unattended());
  header.add("", values_of(static_cast<const Policy&>(config_)), policy_fields);
  if (recall_) {
    header.add(saved_headers::of_recall, values_of(*recall_), recall_fields);
  }
  if (!(format.is_dense() && !format.has_ring())) {
    header.add("key_bits", format.key_bits);
    header.add("value_bits", format.value_bits);
    header.add("group_size", format.group_size);
    header.add("dtype", name_of(format.dtype));
    header.add("recent_bits", format.recent_bits);
    header.add("rotated", format.rotated);
  }
  if (archive_) {
    const RowFormat& archived = archive_->format();
    header.add("archive.first", archive_->first());
    header.add("archive.bits", archived.key_bits);
    header.add("archive.group_size", archived.group_size);
    header.add("archive.dtype", name_of(archived.dtype));
    if (const auto mark = archive_->files().mark()) {
      if (const std::string name = last_part(recall_->store); is_layer_folder(name)) {
        header.add("archive.folder", name);
      }
      header.add("archive.session", mark->session);
      header.add("archive.count", mark->count);
      header.add("archive.chain", mark->chain);
    }
  }
  return header.text();
}

} // namespace h2o
