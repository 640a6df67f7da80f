#pragma once

#include "archive.h"

namespace h2o {

/// A cache of which tokens are evicted, and all of them.
struct ArchivedCache {
  Rows rows; ///< C in use
  Ledger ledger;
  Archive& archive; ///< of all tokens that the cache has seen
  int offset;       ///< that many
};

/// The layouts of its rows; throws std::invalid_argument for what does not fit.
Layouts checked_archived(
    const char* function, const ArchivedCache& cache, const CacheConfig& config);

/// Keys of tokens that come next must be [B, Hkv, a, Dk] as the archive's are.
void check_asking_keys(
    const char* function, const mx::array& keys, const Archive& archive, int offset);

struct RecallArguments {
  mx::array queries;   ///< [B, Hq, a, Dk], of the tokens that ask
  mx::array keys;      ///< [B, Hkv, a, Dk], theirs, which are not written yet
  ArchivedCache cache; ///< before them
  float scale = 1.0f;
  Mask mask =
      {}; ///< broadcasts to [B, Hq, a, a], what they see of each other; none: causal
  std::optional<mx::array> sinks = std::nullopt; ///< [Hq]
  /// int32 [B, M], positions to hold besides, as `bring_back` takes them. Half of a head's own
  /// choice makes place for them.
  std::optional<mx::array> also = std::nullopt;
};

struct Recalled {
  Rows rows;     ///< new buffers where rows came, else the given ones
  Ledger ledger; ///< with `held`
  int count;     ///< rows that came, of all heads
};

/// Brings the rows back that a prompt asks for: just before the write of its last tokens, whose
/// queries choose up to M positions for each KV head, wherever they are. Those that were
/// evicted take the place of the least important rows that are not protected. All of them, and
/// no others, are then held, which eviction passes over until the next recall.
///
/// For one asking token the ledger's victim counts as gone, since the token takes its row. Of
/// a cache with a ring, `held` is then as after that write, which moves one row to the pool.
///
/// An archive whose files cannot be read says so in `failure`, and nothing changes then.
///
/// Evaluates its arguments; logits of one KV head (on a GPU, up to 32 MiB) are in memory.
/// Throws std::invalid_argument for what does not fit.
Recalled recall(
    const RecallArguments& arguments, const CacheConfig& config, mx::StreamOrDevice s = {});

/// Brings the positions back that were chosen for all layers, after the tokens that asked for
/// them and before the next one: those that a KV head does not keep take the place of its
/// least important rows that are not protected. All of them, and no others, are held then, and
/// the ledger's victim is chosen anew. A token whose archived key is not finite stays out.
///
/// `positions` is int32 [B, M], the best first; -1 stands for none. Of more than
/// `recall_rows` the last ones stay out, and where too few rows may go too.
/// An archive whose files cannot be read says so in `failure`, and nothing changes then.
Recalled bring_back(
    const mx::array& positions,
    const ArchivedCache& cache,
    const CacheConfig& config,
    mx::StreamOrDevice s = {});

/// The positions of each sequence that are worth bringing back, int32 [B, M], the best first,
/// -1 where there are fewer: `Recall` says the rule. Evaluates its argument.
///
/// Args:
///   asked_for: float32 [B, N], how much each position from `first` on is asked for.
///   first: the position of the first.
///   seen: tokens so far, of which the newest `recent_budget` are kept anyway, as are sinks
///     and pinned positions.
///   rows: M, at least 1.
mx::array chosen_positions(
    const mx::array& asked_for,
    int first,
    int seen,
    int rows,
    const Policy& policy,
    const Recall& recall,
    mx::StreamOrDevice s = {});

namespace fallback {

/// The same with the logits in MLX operations, as on a GPU.
Recalled recall(
    const RecallArguments& arguments, const CacheConfig& config, mx::StreamOrDevice s);

} // namespace fallback

// How much the last queries of a prompt ask for each archived position.

/// The asking tokens, which neither cache nor archive has yet.
struct Asking {
  mx::array queries; // [B, Hq, a, Dk]
  mx::array keys;    // [B, Hkv, a, Dk]
  float scale;
  Mask mask;                      // broadcasts to [B, Hq, a, a]; none: causal
  std::optional<mx::array> sinks; // [Hq]
};

/// For each position j of an archive, from its first: the largest over the queries of the
/// mean over the head group of the attention probability of j, over all archived positions
/// and the asking tokens. -1 where no logit is finite.
///
/// One KV head at a time, whose logits, Hq / Hkv * a * positions floats, are kept. The
/// archive is read once, packed as it is, and widened 256 positions at a time.
class RelevanceOfHeads {
 public:
  RelevanceOfHeads(const Asking& asking, ArchiveReader& archive)
      : asking_(asking), archive_(archive) {
  }

  /// `relevance` has a float for each position of the archive.
  void compute(int batch, int head, float* relevance);

 private:
  const Asking& asking_;
  ArchiveReader& archive_;
  std::vector<float> queries_, logits_, wide_, most_, mean_, storage_;

  void compute_logits(int batch, int head, int64_t stride);
};

/// The same [B, Hkv, positions] in MLX operations, for a GPU; as many heads at once as have
/// logits of at most 32 MiB. Not evaluated.
mx::array relevance_in_operations(
    const Asking& asking, Archive& archive, mx::StreamOrDevice s);

// Attention of a prompt's last tokens to everything there is: the rows that the cache keeps,
// and what it evicted from the archive.

struct ReadArguments {
  mx::array queries;   ///< [B, Hq, a, Dk], of the tokens that ask
  mx::array keys;      ///< [B, Hkv, a, Dk], theirs, which neither cache nor archive has yet
  mx::array values;    ///< [B, Hkv, a, Dv]
  ArchivedCache cache; ///< before them
  float scale = 1.0f;
  Mask mask =
      {}; ///< broadcasts to [B, Hq, a, a], what they see of each other; none: causal
  std::optional<mx::array> sinks = std::nullopt; ///< [Hq]
};

struct Reading {
  mx::array out; ///< [B, Hq, a, Dv] in the dtype of the queries
  mx::array
      strongest; ///< float32 [B, Hq, N]: of each archived position, from its first, the
                 ///< largest probability that one of the queries gives it
};

/// Exact attention: equal, to rounding, to attention over all positions at once. A position
/// that a KV head keeps in the cache is taken from there, any other from the archive. A key
/// that is not finite is seen by no query.
///
/// The archive is read in tiles of whole segments, twice: for outputs with their largest
/// logits and sums, merged tile by tile, then for probabilities, which need the final sums.
/// Logits and widened rows of two tiles are in memory at a time. None if an archive in files
/// cannot be read, as its `failure` says.
///
/// Throws std::invalid_argument for what does not fit.
std::optional<Reading> read_everything(
    const ReadArguments& arguments, const CacheConfig& config, mx::StreamOrDevice s = {});

} // namespace h2o
