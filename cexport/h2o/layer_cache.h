#pragma once

#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "choice.h"

/// The cache of one layer: its rows, ledger and archive, and all rules for changing them.
namespace h2o {

/// An error of a cache: a code, for which each language has a message, and the message's
/// values.
class CacheError : public std::runtime_error {
 public:
  using Values = std::map<std::string, std::string>;

  CacheError(std::string code, Values values);

  const std::string code;
  const Values values;
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
    int64_t since = 0; ///< single-token steps since the last recall
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
/// itself from the rows that `fetch` returns. Then novelty and recency alone decide which
/// rows stay.
///
/// With recall, after the first eviction, the last tokens of a chunk ask the archive for
/// rows. If `every` is not 0, one of every `every` generated tokens asks too. `attend`
/// writes the asking tokens after the recalled rows. In caches that `join` a choice, the
/// last tokens of a chunk read the whole archive, and the rows that all layers chose come
/// back before the next token.
///
/// B batch, Hkv KV heads, L new tokens, N rows in use, C `max_size`. A wrong shape throws
/// std::invalid_argument and leaves the cache unchanged.
class LayerCache {
 public:
  /// Makes an empty cache; without `recall`, evicted rows do not come back. A cache whose
  /// configuration does not evict has no ledger and no archive. Throws
  /// std::invalid_argument: such a cache has a ring.
  /// `in_operations` is for tests: the cache then computes with MLX operations, as a GPU
  /// does if the kernels cannot be used.
  LayerCache(CacheConfig config, std::optional<Recall> recall, bool in_operations = false);

  /// Returns an independent cache in the same state. Each of the two copies the rows at
  /// its next write.
  LayerCache copy();

  /// Makes the last tokens of a prompt read the whole archive, and choose together with
  /// other layers.
  void join(std::shared_ptr<PromptChoice> choice, int layer);

  /// Writes new tokens.
  ///
  /// Args:
  ///   keys: [B, Hkv, L, Dk], after RoPE at positions `offset`, `offset` + 1, ...
  ///   values: [B, Hkv, L, Dv].
  ///   copy: whether other code still reads the arrays of `fetch`, which must then not
  ///     change.
  void write(
      const mx::array& keys,
      const mx::array& values,
      bool copy = false,
      mx::StreamOrDevice s = {});

  /// Keys and values of all rows in use, [B, Hkv, N, D], followed by the keys and values
  /// of tokens that `attend` has not written yet. Attention that does not pass through the
  /// cache reads these arrays. Call it only after a write.
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

  /// Finishes what was begun, before a save: brings back chosen rows, and writes tokens
  /// without attention, which then do not ask.
  void finish(mx::StreamOrDevice s = {});

  /// Whether the newest tokens can be removed: true until the first eviction. False with a ring,
  /// because tokens cannot return from the pool to the ring, and after the archive has dropped
  /// tokens at its limit.
  bool is_trimmable() const;

  /// Removes the newest `n` tokens; returns how many were removed, 0 after an eviction.
  /// The scores of other rows still contain the attention of these tokens.
  int trim(int n, mx::StreamOrDevice s = {});

  /// Makes the next write copy the rows, because other code still reads them.
  void share();

  /// Moves the archive to files in a new folder and evaluates it; does nothing without an
  /// archive. Throws ArchiveError.
  void move_archive(const std::string& folder, mx::StreamOrDevice s = {});

  /// The arrays to save: the rows in use of each buffer (one row of zeros if it has none),
  /// then the ledger's arrays, then `chosen` if there is one, then the archive's, two for
  /// each of its blocks. A cache that does not evict saves the keys and the values of its
  /// rows instead, each as stored. There are none while the cache is empty.
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
    return offset_ + deferred_tokens();
  }
  /// Rows in use, above C only between a chunk's write and its attention.
  int length() const {
    return deferred_ ? length_after(deferred_tokens()) : length_;
  }
  /// Tokens written without attention.
  int unattended() const {
    return unattended_ + deferred_tokens();
  }
  /// Number of rows that recall has brought back, all heads together.
  int64_t recalled() const {
    return recalled_;
  }
  /// Seconds spent on choosing rows and bringing them back.
  double recall_seconds() const {
    return recall_seconds_;
  }
  /// Dv; 0 before the first values.
  int value_dim() const;
  /// Bytes of the rows' buffers, including unused rows.
  size_t row_bytes() const;
  size_t ledger_bytes() const;
  /// Bytes of rows, ledger and archive.
  size_t nbytes() const;

  const std::optional<Rows>& rows() const {
    return rows_;
  }
  /// None while the cache is empty, and if it does not evict.
  const std::optional<Ledger>& ledger() const {
    return ledger_;
  }
  /// Replaces the ledger, for measurements of other eviction rules.
  void set_ledger(Ledger ledger);

  /// The archive; none without recall, or after recall has ended.
  Archive* archive() {
    return archive_ ? &*archive_ : nullptr;
  }
  /// The positions that all layers recalled for the last prompt, int32 [B, M].
  const std::optional<mx::array>& chosen() const {
    return chosen_;
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
  struct Deferred { // tokens that `attend` writes, because the last of them ask first
    mx::array keys, values;
    int asking;
  };
  struct Attention {
    float scale;
    const std::optional<mx::array>& sinks;
  };

  CacheConfig config_;
  std::optional<Recall> recall_;
  bool in_operations_;
  int offset_ = 0, length_ = 0; // do not count deferred tokens
  std::optional<Rows> rows_;
  std::optional<Ledger> ledger_;       // none if the cache does not evict
  mx::Shape heads_;                    // [B, Hkv, Dk] of the first keys
  std::optional<mx::array> no_victim_; // for writes, if there is no ledger
  int unattended_ = 0;                 // newest tokens in the rows, without attention
  bool is_shared_ = false;             // the next write copies the rows
  bool is_replaced_ = false;           // the buffers were replaced since the last write

  std::optional<Archive> archive_;
  bool recall_ended_ = false;
  int since_ = 0; // single-token steps since the last recall
  int64_t recalled_ = 0;
  double recall_seconds_ = 0;
  std::optional<Deferred> deferred_;
  std::shared_ptr<PromptChoice> choice_;
  int layer_ = 0;
  std::shared_ptr<Ballot> ballot_; // has this layer's vote and is not counted yet
  std::optional<mx::array> chosen_;
  std::vector<CacheNotice> notices_;

  void check_tokens_fit(const mx::array& keys, const mx::array& values) const;
  void check_queries(
      const mx::array& queries,
      int tokens,
      int rows,
      const Mask& mask,
      const std::optional<mx::array>& sinks) const;
  void start(const mx::array& keys, const mx::array& values, mx::StreamOrDevice s);
  void put_or_defer(const mx::array& keys, const mx::array& values, mx::StreamOrDevice s);
  void put(const mx::array& keys, const mx::array& values, mx::StreamOrDevice s);
  void lend();
  void set_heads(mx::Shape heads, mx::StreamOrDevice s);
  int length_after(int tokens) const;
  int deferred_tokens() const {
    return deferred_ ? deferred_->keys.shape(2) : 0;
  }
  mx::array attend_in_parts(
      const mx::array& queries,
      const Attention& attention,
      const Mask& mask,
      mx::StreamOrDevice s);

  // Recall, in layer_cache_recall.cpp.
  int asking(int tokens);
  void start_archive(int key_dim, int value_dim, mx::StreamOrDevice s);
  void make_archive(int key_dim, int value_dim);
  std::optional<mx::array> read(
      const Asking& asking, const mx::array& values, mx::StreamOrDevice s);
  void recall_for(const Asking& asking, mx::StreamOrDevice s);
  void bring_back(mx::StreamOrDevice s);
  void take(const Recalled& recalled);
  void end_recall(CacheNotice notice);
  void check_archive();
  ArchivedCache archived();
  template <class Work>
  auto timed(std::vector<mx::array> arguments, Work work);
};

} // namespace h2o
