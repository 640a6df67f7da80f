#pragma once

#include "archive_files.h"

namespace h2o {

/// Tokens as an archive has them, rotated if it was given a rotated cache's, in float32.
struct ArchivedTokens {
  mx::array keys;   // [B, Hkv, n, Dk]
  mx::array values; // [B, Hkv, n, Dv]
  mx::array novelty;
};

/// Key, value and novelty of every position of one layer, in order, whatever its cache
/// evicts: what `recall` chooses from.
///
/// Tokens are packed at `archive_bits` into segments of 256 positions, which never change;
/// copies share them. A single token is kept as it is until 64 of them are packed together, so
/// that a step of generation costs nothing here. What an archive says never depends on that.
///
/// Every function may throw std::invalid_argument with what was wrong.
class Archive {
 public:
  /// `archive_group` divides the head dims, unless an archive has 16 bits. Whole segments go
  /// to `folder`, if there is one.
  explicit Archive(Recall recall, std::shared_ptr<SegmentFolder> folder = nullptr);

  /// Adds tokens: keys [B, Hkv, L, Dk] as the cache is given them, values [B, Hkv, L, Dv],
  /// and its ledger's key_sum from before them. Rotates them if the cache's rows are rotated:
  /// recall then gets rows as they are stored. Evaluates nothing that is not queued already.
  void append(
      const mx::array& keys,
      const mx::array& values,
      const mx::array& key_sum,
      const CacheConfig& config,
      mx::StreamOrDevice s = {});

  const Recall& recall() const {
    return recall_;
  }
  /// Positions so far (T); those below `first` are gone by the limit.
  int length() const {
    return length_;
  }
  int first() const {
    return first_;
  }
  int key_dim() const {
    return key_dim_;
  }
  /// What [B, Hkv] tokens take; what an empty archive says has no meaning.
  size_t nbytes() const;
  const RowFormat& format() const {
    return format_;
  }

  /// Drops the newest `n` positions.
  void trim(int n, mx::StreamOrDevice s = {});

  /// Rows and novelty of each block, one after the other: whole segments, then what is left.
  /// Those in files are left out; `files().mark()` says where they end.
  std::vector<mx::array> arrays(mx::StreamOrDevice s = {});

  /// The archive whose `arrays` these are. `format` is what it said of its own. `folder` has
  /// the segments before them, and `first` may be later than it was.
  static Archive restored(
      const std::vector<mx::array>& arrays,
      const Recall& recall,
      const RowFormat& format,
      int key_dim,
      int first,
      int length,
      std::shared_ptr<SegmentFolder> folder = nullptr);

  /// The tokens of positions `begin` to before `end`.
  ArchivedTokens tokens(int begin, int end, mx::StreamOrDevice s = {});

  /// The blocks in memory, the newest tokens packed too; for a reader. Those of `files` are
  /// before them.
  const std::vector<ArchiveBlock>& blocks(mx::StreamOrDevice s = {});

  /// The packed keys of the KV heads from `head` to before `last`, of the blocks from `begin` to
  /// before `end`, those of `files` first: [B, heads, positions, row]. Values are not read.
  mx::array packed_keys(int head, int last, int begin, int end, mx::StreamOrDevice s = {});

  const ArchiveFiles& files() const {
    return files_;
  }
  /// Of a token's key and value, packed.
  RowLayout layout() const;

  /// Why the archive is of no more use; memory never fails. It forgets all then.
  std::optional<ArchiveFailure> failure() const {
    return files_.failure();
  }

  int batch() const {
    return batch_;
  }
  int kv_heads() const {
    return kv_heads_;
  }
  int value_dim() const {
    return value_dim_;
  }

 private:
  Recall recall_;
  RowFormat format_; // of one buffer; its dtype is that of the first keys
  int batch_ = 0, kv_heads_ = 0, key_dim_ = 0, value_dim_ = 0;
  int first_ = 0, length_ = 0;
  std::vector<ArchiveBlock> blocks_; // the last may be shorter than a segment
  std::vector<ArchivePiece> pieces_; // single tokens, behind the blocks
  std::vector<mx::array> queued_;    // blocks that nobody may have evaluated yet
  Policy policy_{};                  // of the pieces
  ArchiveFiles files_;               // what is before the blocks

  int64_t token_bytes() const;
  void begin(const mx::array& keys, const mx::array& values);
  void check_tokens_fit(
      const mx::array& keys, const mx::array& values, const mx::array& key_sum) const;
  void pack(mx::StreamOrDevice s);
  void drop_oldest();
  int first_with_files(int first, int length, const std::vector<mx::array>& arrays);
};

/// Where an archived token is, as the kernels of the CPU read it.
struct ArchivedRow {
  cpu::RowsView key;
  cpu::RowsView value;
  float novelty;
};

/// Reads an archive whose blocks are evaluated. Heads count over the batch: b * Hkv + h.
/// What is in files is read head by head: a view is right until the next one is asked for.
class ArchiveReader {
 public:
  /// Does not evaluate; `blocks` must be evaluated before anything is read.
  ArchiveReader(const Archive& archive, const std::vector<ArchiveBlock>& blocks);

  int first() const {
    return first_;
  }
  int end() const {
    return end_;
  }
  size_t blocks() const {
    return stored_ + blocks_.size();
  }
  int count(size_t block) const {
    return block < stored_ ? segment_tokens : blocks_[block - stored_].count();
  }

  /// The keys of one head of a block.
  cpu::RowsView keys(size_t block, int head);

  /// The token at a position from `first` on.
  ArchivedRow row(int position, int head);

 private:
  /// One part of one head of a stored segment.
  struct ReadPart {
    int segment = -1, head = -1;
    std::vector<char> bytes;
  };

  RowLayout layout_;
  const ArchiveFiles& files_;
  const std::vector<ArchiveBlock>& blocks_;
  size_t stored_;
  int first_, end_;
  ReadPart keys_, values_, novelty_;
  std::vector<char> row_;

  const char* row_at(size_t block, int head, int n) const;
  const char* read(ReadPart& part, Part which, int segment, int head);
};

} // namespace h2o
