#pragma once

#include "archive_files.h"

namespace h2o {

/// Key and value of every position of one layer, in order, whether or not its cache has
/// evicted it; later tokens read them (reading.h).
///
/// Whole segments of 256 tokens are packed at `archive_bits`, never change, and are shared by
/// copies. The tail, the newest tokens, which are not a segment yet, stays in the dtype of the
/// keys. The sketch is a copy of all keys, as they are read back from the archive, in 2 bits.
class Archive {
 public:
  /// `archive_group` must divide the head dims, unless the archive has 16 bits. If there
  /// is a `folder`, whole segments are written to it.
  explicit Archive(Recall recall, std::shared_ptr<SegmentFolder> folder = nullptr);

  /// Adds tokens: the keys [B, Hkv, L, Dk] and values [B, Hkv, L, Dv] that the cache
  /// receives. If the cache's rows are rotated, rotates them. Evaluates only arrays whose
  /// inputs were queued before, and, before it drops tokens at the limit, `read_before`, what
  /// may still read them.
  void append(
      const mx::array& keys,
      const mx::array& values,
      const RowFormat& rows,
      const mx::array& read_before,
      mx::StreamOrDevice s = {});

  /// Number of positions so far (T); the limit has dropped positions below
  /// `first`.
  int length() const {
    return length_;
  }
  int first() const {
    return first_;
  }
  /// Bytes of all archived positions, without the sketch; 0 while the archive is empty.
  size_t nbytes() const;
  size_t sketch_bytes() const;
  const RowFormat& format() const {
    return format_;
  }

  /// Makes the next write copy the tail, because a copy of the archive reads it.
  void share();

  /// Drops the newest `n` positions.
  void trim(int n, mx::StreamOrDevice s = {});

  /// The segments in order, [B, Hkv, 256, row], then the tail [B, Hkv, n, Dk + Dv] if it has
  /// tokens. Segments in files are left out; `files().mark()` says where they end.
  std::vector<mx::array> arrays(mx::StreamOrDevice s = {});

  /// Restores an archive from its `format` and its `arrays`, whose shapes the caller has
  /// checked. `folder` contains the segments before them; `first` may be later than when
  /// the archive was saved. Throws std::invalid_argument if arrays are missing, and
  /// ArchiveError if the folder has other segments.
  static Archive restored(
      const std::vector<mx::array>& arrays,
      const Recall& recall,
      const RowFormat& format,
      const Heads& heads,
      int first,
      int length,
      std::shared_ptr<SegmentFolder> folder = nullptr,
      mx::StreamOrDevice s = {});

  const ArchiveFiles& files() const {
    return files_;
  }
  /// Segments in memory; segments in `files` come before them.
  const std::vector<mx::array>& segments() const {
    return segments_;
  }
  /// Tokens behind the segments, and their rows [B, Hkv, 256, Dk + Dv].
  int tail_tokens() const {
    return (length_ - first_) % segment_tokens;
  }
  const std::optional<Rows>& tail() const {
    return tail_;
  }
  /// The sketch of the segments, and of the tail's buffer: [B, Hkv, n, row].
  const std::optional<mx::array>& sketch() const {
    return sketch_;
  }
  const std::optional<mx::array>& tail_sketch() const {
    return tail_sketch_;
  }

  /// The layout of a token's packed key and value, of the tail's, and of a sketched key.
  RowLayout layout() const;
  RowLayout tail_layout() const;
  VectorLayout sketch_layout() const;

  const Heads& heads() const {
    return heads_;
  }

  /// Why the archive failed. A failed archive keeps no tokens. An archive in memory never
  /// fails.
  std::optional<ArchiveFailure> failure() const {
    return files_.failure();
  }

 private:
  Recall recall_;
  RowFormat format_; // of segments, without a ring; has the dtype of the first keys
  Heads heads_{};
  int first_ = 0, length_ = 0;
  std::vector<mx::array> segments_;
  std::optional<Rows> tail_;
  std::optional<mx::array> sketch_, tail_sketch_;
  std::vector<mx::array> queued_; // segments and sketches that may not be evaluated yet
  bool is_shared_ = false;        // a copy reads the tail's buffer
  ArchiveFiles files_;            // the segments before those in memory

  int64_t token_bytes() const;
  int segment_count() const {
    return files_.stored() + int(segments_.size());
  }
  void append_to_tail(
      const mx::array& keys,
      const mx::array& values,
      const mx::array& read_before,
      mx::StreamOrDevice s);
  void add_segment(const mx::array& segment, mx::StreamOrDevice s);
  void drop_oldest(const mx::array& read_before, mx::StreamOrDevice s);
  mx::array sketch_of(const mx::array& keys, mx::StreamOrDevice s) const;
  mx::array sketch_of_segment(const mx::array& segment, mx::StreamOrDevice s) const;
};

} // namespace h2o
