#pragma once

#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "reading.h"

/// The cache of one layer: its rows, ledger and archive, and all rules for changing them.
namespace h2o {

/// A cache that is used wrongly, or a saved cache that no cache has written.
class CacheError : public Refusal {
  using Refusal::Refusal;
};

namespace cache_codes {

inline constexpr const char* attend_before_write = "attend_before_write";
inline constexpr const char* archive_group = "archive_group";
inline constexpr const char* archive_ended = "archive_ended"; // recall has ended
// Errors of a saved cache.
inline constexpr const char* arrays = "other_state";          // found, kind, names
inline constexpr const char* header = "damaged_header";       // part, found, allowed
inline constexpr const char* format = "other_state_format";   // found, known
inline constexpr const char* shape = "damaged_shape";         // part, shape, dtype, allowed
inline constexpr const char* positions = "damaged_positions"; // part
inline constexpr const char* victim = "damaged_victim";       // part
inline constexpr const char* numbers = "damaged_numbers";     // part

} // namespace cache_codes

/// A notice that a cache continues without scores or recall, to show once in a process. Its
/// code is one of archive_codes, notice_codes or cache_codes.
using CacheNotice = ArchiveFailure;

namespace notice_codes {

inline constexpr const char* not_routed = "not_routed"; // no queries arrived
inline constexpr const char* recall_not_asked =
    "recall_not_asked"; // no queries arrived; recall ends
inline constexpr const char* recall_limit = "recall_limit"; // the oldest tokens are gone

} // namespace notice_codes

/// A saved cache, for `restored`: its header and its arrays. Nothing in it is trusted.
struct SavedCache {
  int64_t offset = 0, length = 0;
  int64_t unattended = 0; ///< written tokens without attention
  CacheConfig config;
  std::optional<Recall> recall; ///< its `store` is the archive's current folder
  struct Archive {
    int64_t first = 0; ///< the oldest position in the archive
    RowFormat format;
    std::optional<ArchiveMark> mark; ///< where the segments in files end
  };
  std::optional<Archive> archive;
  std::vector<mx::array> arrays; ///< the result of LayerCache::arrays
};

/// Reads the header of a saved cache: lines of text, as LayerCache::header writes them.
///
/// Args:
///   format: the format that the header must have; empty for any.
///   folder: the folder of the conversation's archive, if it is in files. The caller gives
///     it, because a file must not choose which folder is opened.
///
/// Throws CacheError for a line that no cache writes, PolicyError for settings that no
/// cache has, and ArchiveError if an archive in files has no folder, or no valid mark.
SavedCache saved_cache(
    const std::string& header,
    const std::string& format,
    const std::optional<std::string>& folder);

/// A step is two calls: `write` writes the new tokens to the rows, and `attend` computes
/// their attention and chooses the next row to evict. A caller may compute attention
/// itself from the rows that `fetch` returns. Then recency alone decides which rows stay.
///
/// With recall, after the first eviction, the last `ask` tokens of a chunk attend to all
/// evicted tokens. Each token of a chunk of up to `draft_tokens` attends to the `reach` that
/// match its query best.
///
/// B batch, Hkv KV heads, L new tokens, N rows in use, C `max_size`. A wrong shape throws
/// std::invalid_argument and leaves the cache unchanged.
class LayerCache {
 public:
  /// Makes an empty cache; without `recall`, evicted tokens are lost. A cache whose
  /// configuration does not evict has no ledger and no archive. Throws
  /// std::invalid_argument: such a cache has a ring.
  /// `in_operations` is for tests: the cache then computes with MLX operations, as a GPU
  /// does if the kernels cannot be used.
  LayerCache(CacheConfig config, std::optional<Recall> recall, bool in_operations = false);

  /// Returns an independent cache in the same state. Each of the two copies the rows at
  /// its next write.
  LayerCache copy();

  /// Writes new tokens.
  ///
  /// Args:
  ///   keys: [B, Hkv, L, Dk], after RoPE at positions `offset`, `offset` + 1, ...
  ///   values: [B, Hkv, L, Dv].
  void write(const mx::array& keys, const mx::array& values, mx::StreamOrDevice s = {});

  /// Keys and values of all rows in use, [B, Hkv, N, D]. Attention that does not pass through
  /// the cache reads these arrays. Call it only after a write.
  std::pair<mx::array, mx::array> fetch(mx::StreamOrDevice s = {}) const;

  /// Attention [B, Hq, L, Dv] of the tokens just written, in the dtype of the queries.
  /// Without queries there is no attention, and the ledger gets no scores.
  ///
  /// Throws CacheError: nothing was written since the last call.
  std::optional<mx::array> attend(
      const std::optional<mx::array>& queries,
      float scale = 1.0f,
      const Mask& mask = {},
      const std::optional<mx::array>& sinks = std::nullopt,
      mx::StreamOrDevice s = {});

  /// Adds the written tokens to the ledger without scores, and evicts down to C.
  void settle(mx::StreamOrDevice s = {});

  /// Whether the newest tokens can be removed: true until the first eviction. False with a ring,
  /// because tokens cannot return from the pool to the ring, and after the archive has dropped
  /// tokens at its limit.
  bool is_trimmable() const;

  /// Removes the newest `n` tokens; returns how many were removed, 0 after an eviction.
  /// The scores of other rows still contain the attention of these tokens.
  int trim(int n, mx::StreamOrDevice s = {});

  /// Makes the next write copy the rows, because other code still reads the arrays of `fetch`,
  /// which must then not change.
  void share();

  /// Moves the archive to files in a new folder and evaluates it; does nothing without an
  /// archive. Throws ArchiveError.
  void move_archive(const std::string& folder, mx::StreamOrDevice s = {});

  /// The arrays to save: keys and values of the rows in use of each buffer, as stored (one row
  /// of zeros if it has none), then the ledger's arrays if the cache evicts, then the archive's.
  /// There are none while the cache is empty.
  std::vector<mx::array> arrays(mx::StreamOrDevice s = {});

  /// The text to save with `arrays`: the format, the counts, the settings, and how rows and
  /// archive are stored. It names no folder.
  std::string header();

  /// Restores a saved cache. First checks the numbers, the arrays against the numbers,
  /// and the ledger against the rows.
  ///
  /// Throws CacheError, or ArchiveError for an archive in files.
  static LayerCache restored(SavedCache saved, mx::StreamOrDevice s = {});

  /// Keys and values of the rows in use; the next write copies them.
  std::pair<mx::array, mx::array> views(mx::StreamOrDevice s = {});

  const CacheConfig& config() const {
    return config_;
  }
  const std::optional<Recall>& recall() const {
    return recall_;
  }
  /// Whether no token was written, or all were trimmed.
  bool is_empty() const {
    return !rows_ || offset() == 0;
  }
  /// Tokens seen so far: the position of the next one.
  int offset() const {
    return offset_;
  }
  /// Rows in use, above C only between a chunk's write and its attention.
  int length() const {
    return length_;
  }
  /// Tokens written without attention.
  int unattended() const {
    return unattended_;
  }
  /// Number of archived rows that were read, all heads together.
  int64_t archive_reads() const {
    return archive_reads_;
  }
  /// Bytes of the rows' buffers, including unused rows.
  size_t row_bytes() const;
  size_t ledger_bytes() const;
  /// Bytes of rows, ledger, archive and sketch.
  size_t nbytes() const;

  const std::optional<Rows>& rows() const {
    return rows_;
  }
  /// None while the cache is empty, and if it does not evict.
  const std::optional<Ledger>& ledger() const {
    return ledger_;
  }
  /// Replaces the ledger. With it, parity makes a cache evict the rows that another evicted.
  void set_ledger(Ledger ledger);

  /// The archive; none without recall, or after recall has ended.
  Archive* archive() {
    return archive_ ? &*archive_ : nullptr;
  }
  /// Whether to give a notice if no queries arrive.
  bool expects_queries = true;

  /// Whether a write throws if it cannot create the archive. Otherwise the cache
  /// continues without recall, and gives a notice with the error's code.
  bool must_recall = true;

  /// Returns the notices since the last call.
  std::vector<CacheNotice> take_notices() {
    return std::exchange(notices_, {});
  }

 private:
  CacheConfig config_;
  std::optional<Recall> recall_;
  bool in_operations_;
  int offset_ = 0, length_ = 0;
  std::optional<Rows> rows_;
  std::optional<Ledger> ledger_;       // none if the cache does not evict
  Heads heads_;                        // of the first tokens
  std::optional<mx::array> no_victim_; // for writes, if there is no ledger
  int unattended_ = 0;                 // newest tokens in the rows, without attention
  bool is_shared_ = false;             // the next write copies the rows
  bool is_replaced_ = false;           // the buffers were replaced since the last write

  std::optional<Archive> archive_;
  bool recall_ended_ = false;
  int64_t archive_reads_ = 0;
  std::vector<CacheNotice> notices_;

  void check_tokens_fit(const mx::array& keys, const mx::array& values) const;
  void check_queries(
      const mx::array& queries,
      int tokens,
      int rows,
      const Mask& mask,
      const std::optional<mx::array>& sinks) const;
  void start(const mx::array& keys, const mx::array& values, mx::StreamOrDevice s);
  void put(const mx::array& keys, const mx::array& values, mx::StreamOrDevice s);
  void lend();
  void set_heads(const Heads& heads, mx::StreamOrDevice s);
  int length_after(int tokens) const;

  // In layer_cache_archive.cpp.
  void start_archive();
  std::optional<Elsewhere> read_archive(
      const mx::array& queries, float scale, mx::StreamOrDevice s);
  void end_recall(CacheNotice notice);
  void check_archive();
};

} // namespace h2o
