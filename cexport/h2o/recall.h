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
} // namespace h2o
