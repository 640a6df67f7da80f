#pragma once

#include "archive_files.h"

namespace h2o {

/// Key, value and novelty of every position of one layer, in order, whether or not its
/// cache has evicted it. `recall` chooses from these.
///
/// Tokens are packed at `archive_bits` into segments of 256 positions, which never change
/// and which copies share. Single tokens stay unpacked until 64 can be packed together,
/// so that a step of generation does no work here. The packed content does not depend on
/// when tokens are packed.
class Archive {
 public:
  /// `archive_group` must divide the head dims, unless the archive has 16 bits. If there
  /// is a `folder`, whole segments are written to it.
  explicit Archive(Recall recall, std::shared_ptr<SegmentFolder> folder = nullptr);

  /// Adds tokens: the keys [B, Hkv, L, Dk] and values [B, Hkv, L, Dv] that the cache
  /// receives, and key_sum of the ledger before them. If the cache's rows are rotated,
  /// rotates them, so that recall gets rows as the cache stores them. Evaluates only arrays
  /// whose inputs were queued before.
  void append(
      const mx::array& keys,
      const mx::array& values,
      const mx::array& key_sum,
      const CacheConfig& config,
      mx::StreamOrDevice s = {});

  const Recall& recall() const {
    return recall_;
  }
  /// Number of positions so far (T); the limit has dropped positions below
  /// `first`.
  int length() const {
    return length_;
  }
  int first() const {
    return first_;
  }
  int key_dim() const {
    return key_dim_;
  }
  /// Bytes of all archived positions; 0 while the archive is empty.
  size_t nbytes() const;
  const RowFormat& format() const {
    return format_;
  }

  /// Drops the newest `n` positions.
  void trim(int n, mx::StreamOrDevice s = {});

  /// Rows and novelty of each block in order: whole segments, then a shorter block.
  /// Segments in files are left out; `files().mark()` says where they end.
  std::vector<mx::array> arrays(mx::StreamOrDevice s = {});

  /// Restores an archive from its `format` and its `arrays`, whose shapes the caller has
  /// checked. `folder` contains the segments before them; `first` may be later than when
  /// the archive was saved. Throws std::invalid_argument if arrays are missing, and
  /// ArchiveError if the folder has other segments.
  static Archive restored(
      const std::vector<mx::array>& arrays,
      const Recall& recall,
      const RowFormat& format,
      int key_dim,
      int first,
      int length,
      std::shared_ptr<SegmentFolder> folder = nullptr);

  /// The blocks in memory, after packing the newest tokens too, for a reader. Segments in
  /// `files` come before them.
  const std::vector<ArchiveBlock>& blocks(mx::StreamOrDevice s = {});

  /// The packed keys of the KV heads [head, last) in the blocks [begin, end), where the
  /// blocks of `files` come first: [B, heads, positions, row]. Does not read values.
  mx::array packed_keys(int head, int last, int begin, int end, mx::StreamOrDevice s = {});

  const ArchiveFiles& files() const {
    return files_;
  }
  /// The layout of a token's packed key and value.
  RowLayout layout() const;

  /// Why the archive failed. A failed archive keeps no tokens. An archive in memory never
  /// fails.
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
  RowFormat format_; // of packed rows, without a ring; has the dtype of the first keys
  int batch_ = 0, kv_heads_ = 0, key_dim_ = 0, value_dim_ = 0;
  int first_ = 0, length_ = 0;
  std::vector<ArchiveBlock> blocks_; // the last may be shorter than a segment
  std::vector<ArchivePiece> pieces_; // single tokens after the blocks
  std::vector<mx::array> queued_;    // blocks that may not be evaluated yet
  Policy policy_{};                  // for the novelty of the pieces
  ArchiveFiles files_;               // the segments before the blocks

  int64_t token_bytes() const;
  void pack(mx::StreamOrDevice s);
  void drop_oldest();
  int first_with_files(int first, int length, const std::vector<mx::array>& arrays);
};

/// An archived token in memory, in the form that CPU kernels read.
struct ArchivedRow {
  cpu::RowsView key;
  cpu::RowsView value;
  float novelty;
};

/// Reads an archive whose blocks are evaluated. A head's index is b * Hkv + h. Segments
/// in files are read head by head, so a view is valid only until the next one is
/// requested.
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

  /// The token at a position, which must be at least `first`.
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
