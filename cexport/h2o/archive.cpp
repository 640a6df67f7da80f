#include "archive.h"

#include <algorithm>

#include "checks.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"

namespace h2o {

namespace {

constexpr const char* archive_function = "Archive";

/// A cache of the tail's rows: it keeps all of them as they are.
CacheConfig tail_config() {
  CacheConfig config{};
  config.max_size = int(largest_integer);
  return config;
}

/// Keys and values in rows of the archive. A key with an element that is not finite is packed
/// as zeros with biases of NaN, so that it stays not finite.
mx::array packed_segment(
    const mx::array& keys,
    const mx::array& values,
    const RowFormat& format,
    const RowLayout& layout,
    mx::StreamOrDevice s) {
  if (format.is_dense()) {
    return mx::contiguous(packed_rows(keys, values, format, s), false, s);
  }
  auto finite = mx::all(mx::isfinite(keys, s), -1, true, s);
  auto clean = mx::where(finite, keys, mx::zeros_like(keys, s), s);
  auto rows = packed_rows(clean, values, format, s);
  // The key's biases are the last words of the packed key.
  const int begin = int(layout.key.biases() / 4), end = int(layout.key.bytes() / 4);
  const uint32_t nan = format.dtype == mx::float32   ? 0x7fc00000u
                       : format.dtype == mx::float16 ? 0x7e007e00u
                                                     : 0x7fc07fc0u;
  auto column = mx::arange(rows.shape(3), s);
  auto is_bias = mx::logical_and(
      mx::greater_equal(column, mx::array(begin), s), mx::less(column, mx::array(end), s),
      s);
  auto spoiled = mx::logical_and(is_bias, mx::logical_not(finite, s), s);
  return mx::contiguous(mx::where(spoiled, mx::array(nan, mx::uint32), rows, s), false, s);
}

} // namespace

Archive::Archive(Recall recall, std::shared_ptr<SegmentFolder> folder)
    : recall_(std::move(recall)), files_(std::move(folder)) {
  format_ = {recall_.archive_bits, recall_.archive_bits, archive_group, mx::float32};
  validate(format_);
}

RowLayout Archive::layout() const {
  return make_layouts(
             archive_function, format_, heads_.key_dim, heads_.value_dim, format_.dtype)
      .pool;
}

RowLayout Archive::tail_layout() const {
  RowFormat dense;
  dense.dtype = format_.dtype;
  return make_layouts(
             archive_function, dense, heads_.key_dim, heads_.value_dim, format_.dtype)
      .pool;
}

VectorLayout Archive::sketch_layout() const {
  return h2o::sketch_layout(heads_.key_dim, format_.dtype);
}

int64_t Archive::token_bytes() const {
  return layout().bytes() * heads_.batch * heads_.kv_heads;
}

size_t Archive::nbytes() const {
  return length_ == first_ ? 0 : size_t(length_ - first_) * size_t(token_bytes());
}

size_t Archive::sketch_bytes() const {
  return (sketch_ ? sketch_->nbytes() : 0) + (tail_sketch_ ? tail_sketch_->nbytes() : 0);
}

void Archive::append(
    const mx::array& keys,
    const mx::array& values,
    const RowFormat& rows,
    const mx::array& read_before,
    mx::StreamOrDevice s) {
  if (heads_.batch == 0) {
    format_.dtype = keys.dtype();
    heads_ = {keys.shape(0), keys.shape(1), keys.shape(3), values.shape(3)};
  }
  const int tokens = keys.shape(2);
  if (failure()) {
    length_ += tokens;
    segments_.clear();
    queued_.clear();
    tail_.reset();
    sketch_.reset();
    tail_sketch_.reset();
    return;
  }
  if (!queued_.empty()) {
    // The previous step has queued their inputs, so this waits for nothing.
    mx::async_eval(std::exchange(queued_, {}));
  }
  auto stored = [&](const mx::array& vectors) {
    return mx::astype(as_stored(vectors, rows, s), format_.dtype, s);
  };
  const auto new_keys = stored(keys), new_values = stored(values);
  for (int begin = 0; begin < tokens;) {
    const int end = std::min(tokens, begin + segment_tokens - tail_tokens());
    append_to_tail(
        sliced(new_keys, 2, begin, end, s), sliced(new_values, 2, begin, end, s),
        read_before, s);
    begin = end;
  }
  drop_oldest(read_before, s);
  if (files_.are_written()) {
    files_.keep(segments_, format_, layout(), tokens > 1);
  }
}

/// Adds at most as many tokens as the tail has room for. A full tail becomes a segment.
void Archive::append_to_tail(
    const mx::array& keys,
    const mx::array& values,
    const mx::array& read_before,
    mx::StreamOrDevice s) {
  const int before = tail_tokens();
  tail_ = cache_write(
      {before > 0 ? tail_ : std::nullopt, keys, values, read_before, before, is_shared_},
      tail_config(), s);
  is_shared_ = false;
  length_ += keys.shape(2);
  if (tail_tokens() == 0) {
    const auto rows = sliced(tail_->pool, 2, 0, segment_tokens, s);
    auto part = [&](const VectorLayout& layout) {
      return unpacked(rows, layout, {}, format_.dtype, s);
    };
    const RowLayout dense = tail_layout();
    add_segment(
        packed_segment(part(dense.key), part(dense.value), format_, layout(), s), s);
    tail_.reset();
    tail_sketch_.reset();
    return;
  }
  const auto sketch = sketch_of(keys, s);
  if (before == 0) {
    auto shape = sketch.shape();
    shape[2] = segment_tokens;
    tail_sketch_ = mx::zeros(shape, sketch.dtype(), s);
  }
  auto start = mx::Shape{0, 0, before, 0}, stop = tail_sketch_->shape();
  stop[2] = before + keys.shape(2);
  tail_sketch_ = mx::slice_update(*tail_sketch_, sketch, start, stop, s);
  queued_.push_back(*tail_sketch_);
}

void Archive::add_segment(const mx::array& segment, mx::StreamOrDevice s) {
  const auto sketch = sketch_of_segment(segment, s);
  sketch_ = sketch_ ? mx::concatenate({*sketch_, sketch}, 2, s) : sketch;
  segments_.push_back(segment);
  queued_.insert(queued_.end(), {segment, *sketch_});
}

/// Keys of the archive's dtype as they are sketched.
mx::array Archive::sketch_of(const mx::array& keys, mx::StreamOrDevice s) const {
  const VectorLayout layout = sketch_layout();
  if (layout.bits == 16) {
    return mx::contiguous(keys, false, s);
  }
  auto triple =
      mx::quantize(keys, layout.group_size, layout.bits, "affine", std::nullopt, s);
  auto scales = mx::contiguous(mx::concatenate({triple[1], triple[2]}, 3, s), false, s);
  return mx::concatenate({triple[0], mx::view(scales, mx::uint32, s)}, 3, s);
}

mx::array Archive::sketch_of_segment(const mx::array& segment, mx::StreamOrDevice s) const {
  const auto keys = unpacked(segment, layout().key, format_, mx::float32, s);
  return sketch_of(mx::astype(keys, format_.dtype, s), s);
}

/// Drops whole segments at the limit.
void Archive::drop_oldest(const mx::array& read_before, mx::StreamOrDevice s) {
  const int64_t bytes = recall_.limit > 0 ? token_bytes() : 0;
  const int before = first_;
  while (recall_.limit > 0 && (length_ - first_) * bytes > recall_.limit &&
         segment_count() > 0) {
    if (first_ == before) {
      mx::eval(read_before); // a queued step may read the segment's file
    }
    if (files_.stored() == 0) {
      segments_.erase(segments_.begin());
    }
    files_.drop_oldest();
    first_ += segment_tokens;
  }
  if (segment_count() == 0) {
    sketch_.reset();
  } else if (first_ > before) {
    sketch_ = mx::contiguous(
        sliced(*sketch_, 2, first_ - before, sketch_->shape(2), s), false, s);
    queued_.push_back(*sketch_);
  }
}

void Archive::share() {
  is_shared_ = true;
}

void Archive::trim(int n, mx::StreamOrDevice s) {
  length_ -= n;
  is_shared_ = true; // the next tokens overwrite rows that a queued step may still read
  const int whole = (length_ - first_) / segment_tokens;
  if (whole == segment_count()) {
    if (tail_tokens() == 0) {
      tail_.reset();
      tail_sketch_.reset();
    }
    return;
  }
  const auto cut = whole < files_.stored()
                       ? files_.load(whole, heads_, format_.dtype, layout())
                       : segments_[whole - files_.stored()];
  tail_.reset();
  tail_sketch_.reset();
  if (tail_tokens() > 0) {
    const RowLayout packed = layout();
    tail_ = {mx::contiguous(
        mx::concatenate(
            {unpacked(cut, packed.key, format_, format_.dtype, s),
             unpacked(cut, packed.value, format_, format_.dtype, s)},
            3, s),
        false, s)};
    const int begin = whole * segment_tokens;
    tail_sketch_ = sliced(*sketch_, 2, begin, begin + segment_tokens, s);
  }
  segments_.resize(std::max(0, whole - files_.stored()), cut);
  files_.keep_newest(whole, segments_.size());
  sketch_ = whole > 0 ? std::optional(sliced(*sketch_, 2, 0, whole * segment_tokens, s))
                      : std::nullopt;
}

std::vector<mx::array> Archive::arrays(mx::StreamOrDevice s) {
  std::vector<mx::array> result = segments_;
  if (tail_tokens() > 0) {
    result.push_back(mx::contiguous(sliced(tail_->pool, 2, 0, tail_tokens(), s), false, s));
  }
  return result;
}

Archive Archive::restored(
    const std::vector<mx::array>& arrays,
    const Recall& recall,
    const RowFormat& format,
    const Heads& heads,
    int first,
    int length,
    std::shared_ptr<SegmentFolder> folder,
    mx::StreamOrDevice s) {
  const bool has_files = folder != nullptr;
  Archive archive(recall, std::move(folder));
  archive.format_ = format;
  archive.heads_ = heads;
  archive.length_ = length;
  const int tail = length % segment_tokens; // `first` is a multiple of a segment
  auto in_memory = arrays;
  if (tail > 0 && !in_memory.empty()) {
    archive.tail_ = {mx::contiguous(in_memory.back(), false, s)};
    in_memory.pop_back();
  }
  if (has_files) {
    const int begin = length - tail - int(in_memory.size()) * segment_tokens;
    while (archive.files_.stored() > 0 &&
           begin - archive.files_.stored() * segment_tokens < first) {
      archive.files_.drop_oldest();
    }
    if (archive.files_.stored() > 0) {
      first = std::max(first, begin - archive.files_.stored() * segment_tokens);
    }
  }
  archive.first_ = first;
  const int whole = (length - first) / segment_tokens;
  if (archive.files_.stored() + int(in_memory.size()) != whole ||
      archive.tail_.has_value() != (tail > 0)) {
    refuse(
        archive_function, "there are ", arrays.size(), " arrays; positions from ", first,
        " to ", length, " need ", whole - archive.files_.stored() + (tail > 0), ".");
  }
  archive.files_.check(format, archive.layout(), heads.batch * heads.kv_heads);
  std::vector<mx::array> sketches;
  for (int segment = 0; segment < archive.files_.stored(); ++segment) {
    sketches.push_back(archive.sketch_of_segment(
        archive.files_.load(segment, heads, format.dtype, archive.layout()), s));
    mx::eval(sketches.back());
  }
  for (const auto& segment : in_memory) {
    archive.segments_.push_back(mx::contiguous(segment, false, s));
    sketches.push_back(archive.sketch_of_segment(segment, s));
  }
  if (!sketches.empty()) {
    archive.sketch_ = mx::concatenate(sketches, 2, s);
  }
  if (tail > 0) {
    const auto keys =
        unpacked(archive.tail_->pool, archive.tail_layout().key, {}, format.dtype, s);
    const auto sketch = archive.sketch_of(keys, s);
    auto spare = sketch.shape();
    spare[2] = segment_tokens - tail;
    archive.tail_sketch_ =
        mx::concatenate({sketch, mx::zeros(spare, sketch.dtype(), s)}, 2, s);
  }
  for (const auto* sketch : {&archive.sketch_, &archive.tail_sketch_}) {
    if (*sketch) {
      mx::eval(**sketch);
    }
  }
  return archive;
}

} // namespace h2o
