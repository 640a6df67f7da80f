#include "archive.h"

#include <algorithm>
#include <cstring>

#include "checks.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"
#include "row_layout.h"

namespace h2o {

namespace {

constexpr const char* archive_function = "Archive";

} // namespace

Archive::Archive(Recall recall, std::shared_ptr<SegmentFolder> folder)
    : recall_(std::move(recall)), files_(std::move(folder)) {
  format_ = {recall_.archive_bits, recall_.archive_bits, archive_group, mx::float32};
  validate(format_);
}

RowLayout Archive::layout() const {
  return make_layouts(archive_function, format_, key_dim_, value_dim_, format_.dtype).pool;
}

int64_t Archive::token_bytes() const {
  const int64_t row = layout().bytes() + int64_t(sizeof(float));
  return row * batch_ * kv_heads_;
}

size_t Archive::nbytes() const {
  return length_ == first_ ? 0 : size_t(length_ - first_) * size_t(token_bytes());
}

void Archive::append(
    const mx::array& keys,
    const mx::array& values,
    const mx::array& key_sum,
    const CacheConfig& config,
    mx::StreamOrDevice s) {
  if (batch_ == 0) {
    format_.dtype = keys.dtype();
    batch_ = keys.shape(0);
    kv_heads_ = keys.shape(1);
    key_dim_ = keys.shape(3);
    value_dim_ = values.shape(3);
  }
  if (failure()) {
    length_ += keys.shape(2);
    blocks_.clear();
    pieces_.clear();
    queued_.clear();
    return;
  }
  if (!queued_.empty()) {
    mx::async_eval(std::exchange(queued_, {}));
  }
  const bool is_single = keys.shape(2) == 1;
  if (!pieces_.empty() && (!is_single || pieces_.size() == size_t(packed_tokens))) {
    pack(s);
    if (is_single) {
      // The previous step has queued the blocks' inputs, so this waits for nothing.
      mx::async_eval(std::exchange(queued_, {}));
    }
  }
  policy_ = config;
  const RowFormat& rows = config.format;
  pieces_.push_back(
      {mx::astype(as_stored(keys, rows, s), format_.dtype, s),
       mx::astype(as_stored(values, rows, s), format_.dtype, s), key_sum});
  length_ += keys.shape(2);
  if (!is_single) {
    pack(s);
  }
  if (recall_.limit > 0) {
    const int64_t bytes = token_bytes();
    while ((length_ - first_) * bytes > recall_.limit &&
           first_ + segment_tokens <= length_) {
      first_ += segment_tokens;
    }
    drop_oldest();
  }
  if (files_.are_written()) {
    files_.keep(blocks_, format_, layout(), !is_single);
  }
}

/// Packs the pieces into blocks at the end.
void Archive::pack(mx::StreamOrDevice s) {
  if (pieces_.empty()) {
    return;
  }
  std::optional<ArchiveBlock> tail;
  if (!blocks_.empty() && blocks_.back().count() < segment_tokens) {
    tail = std::move(blocks_.back());
    blocks_.pop_back();
  }
  int tokens = 0;
  for (const auto& piece : pieces_) {
    tokens += piece.keys.shape(2);
  }
  for (auto& block : pack_archive(tail, pieces_, length_ - tokens, format_, policy_, s)) {
    queued_.insert(queued_.end(), {block.rows, block.novelty});
    blocks_.push_back(std::move(block));
  }
  pieces_.clear();
  drop_oldest();
}

/// Drops the blocks beyond the limit; tokens that are not packed yet are dropped later.
void Archive::drop_oldest() {
  if (first_ == 0) {
    return;
  }
  int packed = 0, tokens = 0;
  for (const auto& block : blocks_) {
    packed += block.count();
  }
  for (const auto& piece : pieces_) {
    tokens += piece.keys.shape(2);
  }
  int begin = length_ - tokens - packed - files_.stored() * segment_tokens;
  for (; files_.stored() > 0 && begin < first_; begin += segment_tokens) {
    files_.drop_oldest();
  }
  auto block = blocks_.begin();
  // Drops only whole blocks, because dropping a partial one would shift the positions in
  // the next block.
  while (block != blocks_.end() && block->count() == segment_tokens && begin < first_) {
    begin += segment_tokens;
    files_.drop_oldest();
    ++block;
  }
  blocks_.erase(blocks_.begin(), block);
}

void Archive::trim(int n, mx::StreamOrDevice s) {
  pack(s);
  length_ -= n;
  while (n > 0 && blocks_.back().count() <= n) {
    n -= blocks_.back().count();
    blocks_.pop_back();
    if (blocks_.empty() && files_.stored() > 0) {
      blocks_.push_back(files_.load(
          files_.stored() - 1, {batch_, kv_heads_}, rows_dtype(layout(), format_.dtype),
          layout()));
      files_.drop_newest();
    }
  }
  if (n > 0) {
    auto& last = blocks_.back();
    const int stay = last.count() - n;
    auto cut = [&](const mx::array& a) {
      return mx::contiguous(sliced(a, 2, 0, stay, s), false, s);
    };
    last = {cut(last.rows), cut(last.novelty)};
  }
  files_.keep_whole(std::count_if(blocks_.begin(), blocks_.end(), [](const auto& block) {
    return block.count() == segment_tokens;
  }));
}

const std::vector<ArchiveBlock>& Archive::blocks(mx::StreamOrDevice s) {
  pack(s);
  return blocks_;
}

std::vector<mx::array> Archive::arrays(mx::StreamOrDevice s) {
  std::vector<mx::array> result;
  for (const auto& block : blocks(s)) {
    result.insert(result.end(), {block.rows, block.novelty});
  }
  return result;
}

mx::array Archive::packed_keys(
    int head, int last, int begin, int end, mx::StreamOrDevice s) {
  const auto& in_memory = blocks(s);
  const int64_t key_bytes = layout().key.bytes();
  const auto dtype = rows_dtype(layout(), format_.dtype);
  const int stored = std::clamp(files_.stored(), begin, end);
  std::vector<mx::array> parts;
  if (begin < stored) {
    parts.push_back(files_.load_keys(
        {batch_, kv_heads_, head, last, begin, stored - begin}, dtype, key_bytes));
  }
  for (int block = stored; block < end; ++block) {
    const auto heads = sliced(in_memory[block - files_.stored()].rows, 1, head, last, s);
    parts.push_back(sliced(heads, 3, 0, int(key_bytes / mx::size_of(dtype)), s));
  }
  return mx::concatenate(parts, 2, s);
}

Archive Archive::restored(
    const std::vector<mx::array>& arrays,
    const Recall& recall,
    const RowFormat& format,
    int key_dim,
    int first,
    int length,
    std::shared_ptr<SegmentFolder> folder) {
  const bool has_files = folder != nullptr;
  Archive archive(recall, std::move(folder));
  if (has_files) {
    first = archive.first_with_files(first, length, arrays);
  }
  const int tokens = length - first;
  const int whole = tokens / segment_tokens + (tokens % segment_tokens != 0);
  const size_t blocks = size_t(std::max(0, whole - archive.files_.stored()));
  if (arrays.size() != 2 * blocks) {
    refuse(
        archive_function, "there are ", arrays.size(), " arrays; positions from ", first,
        " to ", length, " need ", 2 * blocks, ".");
  }
  archive.format_ = format;
  archive.first_ = first;
  archive.length_ = length;
  if (blocks == 0) {
    if (archive.files_.stored() > 0) {
      // A saved cache always contains the newest block, whose shape is the shape of the
      // blocks in files.
      throw ArchiveError({archive_codes::other, archive.files_.path(), 0});
    }
    return archive;
  }
  const RowLayout layout = layouts_of(archive_function, format, {arrays[0]}, key_dim).pool;
  archive.batch_ = arrays[0].shape(0);
  archive.kv_heads_ = arrays[0].shape(1);
  archive.key_dim_ = key_dim;
  archive.value_dim_ = layout.value.dim;
  for (size_t i = 0; i < blocks; ++i) {
    archive.blocks_.push_back(
        {mx::contiguous(arrays[2 * i]), mx::contiguous(arrays[2 * i + 1])});
  }
  archive.files_.check(format, layout, archive.batch_ * archive.kv_heads_);
  return archive;
}

/// The first position of an archive in files. Its folder may have dropped more or fewer
/// segments than when the cache was saved.
int Archive::first_with_files(int first, int length, const std::vector<mx::array>& arrays) {
  int64_t tokens = 0;
  for (size_t i = 0; i < arrays.size(); i += 2) {
    tokens += arrays[i].ndim() == 4 ? arrays[i].shape(2) : 0;
  }
  const int64_t begin = length - tokens;
  while (files_.stored() > 0 && begin - int64_t(files_.stored()) * segment_tokens < first) {
    files_.drop_oldest();
  }
  const int64_t first_stored = begin - int64_t(files_.stored()) * segment_tokens;
  return files_.stored() > 0 ? int(std::max<int64_t>(first, first_stored)) : first;
}

ArchiveReader::ArchiveReader(
    const Archive& archive, const std::vector<ArchiveBlock>& blocks)
    : layout_(archive.layout()),
      files_(archive.files()),
      blocks_(blocks),
      stored_(size_t(archive.files().stored())),
      first_(archive.first()),
      end_(archive.length()) {
}

const char* ArchiveReader::row_at(size_t block, int head, int n) const {
  const auto& rows = blocks_[block - stored_].rows;
  return rows.data<char>() + (int64_t(head) * rows.shape(2) + n) * layout_.bytes();
}

const char* ArchiveReader::read(ReadPart& part, Part which, int segment, int head) {
  if (part.segment != segment || part.head != head) {
    const int64_t bytes = which == Part::keys     ? layout_.key.bytes()
                          : which == Part::values ? layout_.value.bytes()
                                                  : int64_t(sizeof(float));
    part.bytes.resize(segment_tokens * bytes);
    files_.read(segment, which, head, part.bytes);
    part.segment = segment;
    part.head = head;
  }
  return part.bytes.data();
}

cpu::RowsView ArchiveReader::keys(size_t block, int head) {
  if (block < stored_) {
    return layout_.key.view(read(keys_, Part::keys, int(block), head), layout_.key.bytes());
  }
  return layout_.key.view(row_at(block, head, 0), layout_.bytes());
}

ArchivedRow ArchiveReader::row(int position, int head) {
  const size_t block = size_t(position - first_) / segment_tokens;
  const int n = (position - first_) % segment_tokens;
  const int64_t stride = layout_.bytes();
  if (block < stored_) {
    const int64_t key = layout_.key.bytes(), value = layout_.value.bytes();
    row_.resize(stride);
    std::memcpy(row_.data(), read(keys_, Part::keys, int(block), head) + n * key, key);
    std::memcpy(
        row_.data() + key, read(values_, Part::values, int(block), head) + n * value,
        value);
    float novelty;
    std::memcpy(
        &novelty,
        read(novelty_, Part::novelty, int(block), head) + n * int64_t(sizeof(float)),
        sizeof(float));
    return {
        layout_.key.view(row_.data(), stride), layout_.value.view(row_.data(), stride),
        novelty};
  }
  const char* row = row_at(block, head, n);
  const auto& novelty = blocks_[block - stored_].novelty;
  return {
      layout_.key.view(row, stride), layout_.value.view(row, stride),
      novelty.data<float>()[int64_t(head) * novelty.shape(2) + n]};
}

} // namespace h2o
