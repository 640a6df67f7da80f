#include "archive.h"

#include <algorithm>

#include "checks.h"
#include "fallback_ops.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"

namespace h2o {

namespace {

constexpr const char* archive_function = "Archive";

/// Single tokens that are packed together.
constexpr size_t packed_together = 64;

RowLayout archive_layout(const Archive& archive) {
  return make_layouts(
             archive_function, archive.format(), archive.key_dim(), archive.value_dim(),
             archive.format().dtype)
      .pool;
}

} // namespace

Archive::Archive(Recall recall, int group_size) : recall_(std::move(recall)) {
  validate(recall_);
  format_ = {recall_.archive_bits, recall_.archive_bits, group_size, mx::float32};
  validate(format_);
}

int64_t Archive::token_bytes() const {
  const int64_t row = archive_layout(*this).bytes() + int64_t(sizeof(float));
  return row * batch_ * kv_heads_;
}

size_t Archive::nbytes() const {
  return length_ == first_ ? 0 : size_t(length_ - first_) * size_t(token_bytes());
}

void Archive::begin(const mx::array& keys, const mx::array& values) {
  make_layouts(archive_function, format_, keys.shape(3), values.shape(3), keys.dtype());
  format_.dtype = keys.dtype();
  batch_ = keys.shape(0);
  kv_heads_ = keys.shape(1);
  key_dim_ = keys.shape(3);
  value_dim_ = values.shape(3);
}

void Archive::check_tokens_fit(
    const mx::array& keys, const mx::array& values, const mx::array& key_sum) const {
  check_heads(archive_function, "keys", keys, "[B, Hkv, L, Dk]");
  check_heads(archive_function, "values", values, "[B, Hkv, L, Dv]");
  check_tokens(archive_function, length_, keys.shape(2), 1);
  auto check = [](const char* name, const mx::array& a, const mx::Shape& expected) {
    if (a.shape() != expected) {
      refuse(
          archive_function, name, " has shape ", a.shape(), "; expected ", expected, ".");
    }
  };
  const int tokens = keys.shape(2);
  if (batch_ > 0) {
    check("keys", keys, {batch_, kv_heads_, tokens, key_dim_});
    check("values", values, {batch_, kv_heads_, tokens, value_dim_});
  }
  check("values", values, {keys.shape(0), keys.shape(1), tokens, values.shape(3)});
  check("key_sum", key_sum, {keys.shape(0), keys.shape(1), keys.shape(3)});
  if (key_sum.dtype() != mx::float32) {
    refuse(archive_function, "key_sum has dtype ", key_sum.dtype(), "; expected float32.");
  }
}

void Archive::append(
    const mx::array& keys,
    const mx::array& values,
    const mx::array& key_sum,
    const Policy& policy,
    mx::StreamOrDevice s) {
  check_tokens_fit(keys, values, key_sum);
  if (batch_ == 0) {
    begin(keys, values);
  }
  if (!queued_.empty()) {
    mx::async_eval(std::exchange(queued_, {}));
  }
  const bool is_single = keys.shape(2) == 1;
  if (!pieces_.empty() && (!is_single || pieces_.size() == packed_together)) {
    pack(s);
    if (is_single) {
      // What they were made from was queued with the step before this one.
      mx::async_eval(std::exchange(queued_, {}));
    }
  }
  policy_ = policy;
  pieces_.push_back(
      {mx::astype(keys, format_.dtype, s), mx::astype(values, format_.dtype, s), key_sum});
  length_ += keys.shape(2);
  if (!is_single) {
    pack(s);
  }
  const int64_t bytes = token_bytes();
  while (recall_.limit > 0 && (length_ - first_) * bytes > recall_.limit &&
         first_ + segment_tokens <= length_) {
    first_ += segment_tokens;
  }
  drop_oldest();
}

/// Packs the pieces behind the blocks.
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

/// Lets the blocks go that the limit has passed; those not packed yet follow later.
void Archive::drop_oldest() {
  int held = 0, tokens = 0;
  for (const auto& block : blocks_) {
    held += block.count();
  }
  for (const auto& piece : pieces_) {
    tokens += piece.keys.shape(2);
  }
  int begin = length_ - tokens - held;
  auto block = blocks_.begin();
  // A block that is not whole yet would leave the next one at another position.
  while (block != blocks_.end() && block->count() == segment_tokens && begin < first_) {
    begin += segment_tokens;
    ++block;
  }
  blocks_.erase(blocks_.begin(), block);
}

void Archive::trim(int n, mx::StreamOrDevice s) {
  if (n < 0 || n > length_ - first_) {
    refuse(
        archive_function, "n is ", n, "; expected between 0 and the ", length_ - first_,
        " positions that are there.");
  }
  pack(s);
  length_ -= n;
  while (n > 0 && blocks_.back().count() <= n) {
    n -= blocks_.back().count();
    blocks_.pop_back();
  }
  if (n > 0) {
    auto& last = blocks_.back();
    const int stay = last.count() - n;
    auto cut = [&](const mx::array& a) {
      return mx::contiguous(fallback::take_rows(a, 2, 0, stay, s), false, s);
    };
    last = {cut(last.rows), cut(last.novelty)};
  }
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

ArchivedTokens Archive::tokens(int begin, int end, mx::StreamOrDevice s) {
  if (begin < first_ || begin >= end || end > length_) {
    refuse(
        archive_function, "positions ", begin, " to ", end,
        " are not all there; those from ", first_, " to ", length_, " are.");
  }
  std::vector<mx::array> rows, novelty;
  for (const auto& block : blocks(s)) {
    rows.push_back(block.rows);
    novelty.push_back(block.novelty);
  }
  auto cut = [&](const std::vector<mx::array>& parts) {
    return fallback::take_rows(
        mx::concatenate(parts, 2, s), 2, begin - first_, end - first_, s);
  };
  auto [keys, values] = unpacked_rows(cut(rows), format_, key_dim_, mx::float32, s);
  return {
      mx::astype(keys, mx::float32, s), mx::astype(values, mx::float32, s), cut(novelty)};
}

Archive Archive::restored(
    const std::vector<mx::array>& arrays,
    const Recall& recall,
    const RowFormat& format,
    int key_dim,
    int first,
    int length) {
  Archive archive(recall, format.group_size);
  if (format.key_bits != recall.archive_bits || format.value_bits != recall.archive_bits ||
      format.has_ring()) {
    refuse(
        archive_function, "the saved archive has ", format.key_bits,
        " bits; archive_bits is ", recall.archive_bits, ".");
  }
  if (!is_supported(format.dtype)) {
    refuse(
        archive_function, "dtype is ", format.dtype,
        "; expected float32, float16 or bfloat16.");
  }
  check_tokens(archive_function, length, 0, 0);
  if (first < 0 || first > length || first % segment_tokens != 0) {
    refuse(
        archive_function, "first is ", first, "; expected a multiple of ", segment_tokens,
        " up to the length ", length, ".");
  }
  const size_t blocks = size_t((length - first + segment_tokens - 1) / segment_tokens);
  if (arrays.size() != 2 * blocks) {
    refuse(
        archive_function, "there are ", arrays.size(), " arrays; positions from ", first,
        " to ", length, " need ", 2 * blocks, ".");
  }
  archive.format_ = format;
  archive.first_ = first;
  archive.length_ = length;
  if (blocks == 0) {
    return archive;
  }
  check_rows(archive_function, {arrays[0]}, format);
  const RowLayout layout = layouts_of(archive_function, format, {arrays[0]}, key_dim).pool;
  archive.batch_ = arrays[0].shape(0);
  archive.kv_heads_ = arrays[0].shape(1);
  archive.key_dim_ = key_dim;
  archive.value_dim_ = layout.value.dim;
  for (size_t i = 0; i < blocks; ++i) {
    const auto &rows = arrays[2 * i], &novelty = arrays[2 * i + 1];
    const int count = std::min(segment_tokens, length - first - int(i) * segment_tokens);
    const mx::Shape shape{archive.batch_, archive.kv_heads_, count};
    mx::Shape rows_shape = shape;
    rows_shape.push_back(arrays[0].shape(3));
    if (rows.shape() != rows_shape || rows.dtype() != arrays[0].dtype() ||
        novelty.shape() != shape || novelty.dtype() != mx::float32) {
      refuse(
          archive_function, "block ", i, " has rows of shape ", rows.shape(), " and dtype ",
          rows.dtype(), " and novelty of shape ", novelty.shape(), " and dtype ",
          novelty.dtype(), "; expected ", rows_shape, " of ", arrays[0].dtype(), " and ",
          shape, " of float32.");
    }
    archive.blocks_.push_back({mx::contiguous(rows), mx::contiguous(novelty)});
  }
  return archive;
}

ArchiveReader::ArchiveReader(
    const Archive& archive, const std::vector<ArchiveBlock>& blocks)
    : layout_(archive_layout(archive)),
      blocks_(blocks),
      first_(archive.first()),
      end_(archive.length()) {
}

const char* ArchiveReader::row_at(size_t block, int head, int n) const {
  const auto& rows = blocks_[block].rows;
  return rows.data<char>() + (int64_t(head) * rows.shape(2) + n) * layout_.bytes();
}

cpu::RowsView ArchiveReader::keys(size_t block, int head) const {
  return layout_.key.view(row_at(block, head, 0), layout_.bytes());
}

ArchivedRow ArchiveReader::row(int position, int head) const {
  const size_t block = size_t(position - first_) / segment_tokens;
  const int n = (position - first_) % segment_tokens;
  const char* row = row_at(block, head, n);
  const auto& novelty = blocks_[block].novelty;
  return {
      layout_.key.view(row, layout_.bytes()), layout_.value.view(row, layout_.bytes()),
      novelty.data<float>()[int64_t(head) * novelty.shape(2) + n]};
}

} // namespace h2o
