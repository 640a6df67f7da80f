#pragma once

#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "choice.h"

/// The cache of one layer: its rows, ledger and archive, and all rules of when each changes.
namespace h2o {

/// Why a cache refuses: a code that languages have words for, and the values that belong to it.
class CacheError : public std::runtime_error {
 public:
  using Values = std::map<std::string, std::string>;

  CacheError(std::string code, Values values);

  const std::string code;
  const Values values;
};

namespace cache_codes {

inline constexpr const char* attend_before_write = "attend_before_write";
inline constexpr const char* archive_group = "archive_group"; // bits, dims
// Of a saved cache.
inline constexpr const char* arrays = "other_state";          // found, kind, names
inline constexpr const char* header = "damaged_header";       // part, found, allowed
inline constexpr const char* shape = "damaged_shape";         // part, shape, dtype, allowed
inline constexpr const char* positions = "damaged_positions"; // part
inline constexpr const char* victim = "damaged_victim";       // part
inline constexpr const char* numbers = "damaged_numbers";     // part

} // namespace cache_codes

/// What a cache goes on without, to be said once in a process.
struct CacheNotice {
  std::string code;      ///< below, or one of archive_codes
  std::string path = {}; ///< of an archive in files
  int error = 0;         ///< errno, or 0
};

namespace notice_codes {

inline constexpr const char* not_routed = "not_routed";             // no queries arrived
inline constexpr const char* recall_not_asked = "recall_not_asked"; // so recall is off
inline constexpr const char* recall_limit = "recall_limit"; // the oldest tokens are gone

} // namespace notice_codes

/// What `restored` makes a cache of: what a saved one said of itself, of which nothing is
/// trusted.
struct SavedCache {
  int64_t offset, length;
  int64_t pending; ///< tokens written whose attention is outstanding
  CacheConfig config;
  std::optional<Recall> recall; ///< its `store` is the folder that the caller gives
  struct Archive {
    int64_t first, since; ///< see LayerCache::since
    RowFormat format;
    std::optional<ArchiveMark> mark; ///< where it ends in files
  };
  std::optional<Archive> archive;
  std::vector<mx::array> arrays; ///< as LayerCache::arrays gives them
};

/// A step is two calls: `write` puts the new tokens into the rows, `attend` computes their
/// attention, from which follows what goes next. Where nobody calls `attend`, the rows that
/// `fetch` gives serve any attention, and novelty and recency alone decide what stays.
///
/// With recall the last tokens of a chunk, or one token of several, first bring back what they
/// ask for, as soon as something was evicted; `attend` writes these. Caches that `join` a
/// choice let the last tokens of a chunk read everything instead, and bring back, before the
/// next token, what all layers chose together.
///
/// B batch, Hkv KV heads, L new tokens, N rows in use, C `max_size`. Wrong shapes throw
/// std::invalid_argument, and leave the cache as it was.
class LayerCache {
 public:
  /// An empty cache; `recall` only if it recalls. `in_operations` computes as a GPU does what
  /// the kernels do not take: for tests.
  LayerCache(CacheConfig config, std::optional<Recall> recall, bool in_operations = false);

  /// An independent cache in the same state, which copies the rows when it writes. So does the
  /// one that it was copied from.
  LayerCache copy();

  /// Reads everything at prompts from now on, and chooses together with other layers.
  void join(std::shared_ptr<PromptChoice> choice, int layer);

  /// Writes new tokens.
  ///
  /// Args:
  ///   keys: [B, Hkv, L, Dk], after RoPE at positions `offset`, `offset` + 1, ...
  ///   values: [B, Hkv, L, Dv].
  ///   copy: whether something still reads what `fetch` gave: it stays as it is then.
  void write(
      const mx::array& keys,
      const mx::array& values,
      bool copy = false,
      mx::StreamOrDevice s = {});

  /// Keys and values of all rows in use, [B, Hkv, N, D], then of the tokens that wait for
  /// `attend` to write them: what attention reads that does not pass through the cache. Only
  /// after a write.
  std::pair<mx::array, mx::array> fetch(mx::StreamOrDevice s = {}) const;

  /// Attention [B, Hq, L, Dv] of the tokens just written, in the dtype of the queries.
  ///
  /// Throws CacheError: nothing was written since the last call.
  mx::array attend(
      const mx::array& queries,
      float scale,
      const Mask& mask = {},
      const std::optional<mx::array>& sinks = std::nullopt,
      mx::StreamOrDevice s = {});

  /// Enters the written tokens without scores, and evicts down to C.
  void settle(mx::StreamOrDevice s = {});

  /// Brings back what was chosen, and writes tokens that nobody attended without recall: what
  /// is saved is whole then.
  void finish(mx::StreamOrDevice s = {});

  /// Whether the newest tokens can be removed: until the first eviction; never with a ring,
  /// whose tokens do not come back from the pool, nor once a limit made the archive drop some.
  bool is_trimmable() const;

  /// Removes the newest `n` tokens; gives how many went, 0 after an eviction. What their
  /// queries added to the scores of other rows stays.
  int trim(int n, mx::StreamOrDevice s = {});

  /// Makes the next write copy the rows, which something still reads.
  void share();

  /// Goes on with its archive in files of a new folder; nothing without an archive. Nothing
  /// archived is then left to compute. Throws ArchiveError.
  void move_archive(const std::string& folder, mx::StreamOrDevice s = {});

  /// The rows in use of each buffer, where a row of zeros stands for none, then the ledger's
  /// arrays, then those of the archive; none while the cache is empty.
  std::vector<mx::array> arrays(mx::StreamOrDevice s = {});

  /// The cache that had these arrays. Checks everything before it uses anything: the numbers,
  /// the arrays against them, and what the ledger says of the rows.
  ///
  /// Throws CacheError, or ArchiveError for an archive in files.
  static LayerCache restored(SavedCache saved, mx::StreamOrDevice s = {});

  /// Keys and values of the rows in use; what writes next copies them.
  std::pair<mx::array, mx::array> views(mx::StreamOrDevice s = {});

  const CacheConfig& config() const {
    return config_;
  }
  const std::optional<Recall>& recall() const {
    return recall_;
  }
  /// Whether nothing was written yet, or all of it was trimmed again.
  bool is_empty() const {
    return !rows_ || offset_ == 0;
  }
  /// Tokens seen so far: the position of the next one.
  int offset() const {
    return offset_;
  }
  /// Rows in use, above C only between a chunk's write and its attention.
  int length() const {
    return length_;
  }
  /// Tokens written whose attention is outstanding.
  int waiting() const {
    return before_ ? offset_ - before_->offset : 0;
  }
  /// Single steps since the last recall.
  int since() const {
    return since_;
  }
  /// Rows that came back so far, in all heads.
  int64_t recalled() const {
    return recalled_;
  }
  /// Seconds that it took to choose these and to bring them back.
  double recall_seconds() const {
    return recall_seconds_;
  }
  /// Dv; 0 before the first values.
  int value_dim() const;
  /// Bytes of the rows' buffers, spare rows included.
  size_t row_bytes() const;
  size_t ledger_bytes() const;
  /// Bytes of rows, ledger and archive.
  size_t nbytes() const;

  const std::optional<Rows>& rows() const {
    return rows_;
  }
  const std::optional<Ledger>& ledger() const {
    return ledger_;
  }
  /// Puts another ledger in the place of the cache's: for measurements that decide otherwise.
  void set_ledger(Ledger ledger);

  /// What recall chooses from; none without recall, or once it ended.
  Archive* archive() {
    return archive_ ? &*archive_ : nullptr;
  }
  /// The positions that came back for the last prompt in all layers, int32 [B, M].
  const std::optional<mx::array>& chosen() const {
    return chosen_;
  }

  /// Whether missing queries are worth a notice.
  bool expects_queries = true;

  /// Whether a write throws where it cannot make the archive. Otherwise the cache goes on
  /// without recall, and a notice has the error's code.
  bool must_recall = true;

  /// What came up since the last time this was asked.
  std::vector<CacheNotice> take_notices() {
    return std::exchange(notices_, {});
  }

 private:
  struct Before { // the tokens that were written last
    int offset, length;
  };
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
  int offset_ = 0, length_ = 0;
  std::optional<Rows> rows_;
  std::optional<Ledger> ledger_;
  std::optional<Before> before_;
  bool is_shared_ = false;   // the next write copies the rows
  bool is_replaced_ = false; // new buffers came since the last write

  std::optional<Archive> archive_;
  bool recall_ended_ = false;
  int since_ = 0;
  int64_t recalled_ = 0;
  double recall_seconds_ = 0;
  std::optional<Deferred> deferred_;
  std::shared_ptr<PromptChoice> choice_;
  int layer_ = 0;
  std::shared_ptr<Ballot> ballot_; // with this layer's vote, not counted yet
  std::optional<mx::array> chosen_;
  std::vector<CacheNotice> notices_;

  void check_tokens_fit(const mx::array& keys, const mx::array& values) const;
  void start(const mx::array& keys, const mx::array& values, mx::StreamOrDevice s);
  void put(const mx::array& keys, const mx::array& values, mx::StreamOrDevice s);
  void advance(int tokens);
  Deferred take_deferred();
  std::optional<mx::array> attend_rows(
      const std::optional<mx::array>& queries,
      const Attention& attention,
      const Mask& mask,
      mx::StreamOrDevice s);
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
      const mx::array& queries,
      const Deferred& asking,
      const Attention& attention,
      const Mask& mask,
      mx::StreamOrDevice s);
  void recall_for(
      const mx::array& queries,
      const mx::array& keys,
      const Attention& attention,
      const Mask& mask,
      mx::StreamOrDevice s);
  void bring_back(mx::StreamOrDevice s);
  void take(const Recalled& recalled);
  void end_recall(CacheNotice notice);
  void check_archive();
  ArchivedCache archived();
  template <class Work>
  auto timed(std::vector<mx::array> arguments, Work work);
};

} // namespace h2o
