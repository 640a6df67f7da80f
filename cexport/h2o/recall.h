#pragma once

#include "archive.h"

namespace h2o {

/// A cache that evicts, and the archive of all its tokens.
struct ArchivedCache {
  Rows rows; ///< C rows in use
  Ledger ledger;
  Archive& archive; ///< of all tokens that the cache has seen
  int offset;       ///< number of these tokens
};

/// The tokens whose queries ask for rows. Neither cache nor archive contains them yet.
struct Asking {
  mx::array queries; ///< [B, Hq, a, Dk]
  mx::array keys;    ///< [B, Hkv, a, Dk]
  float scale = 1.0f;
  /// Which of these tokens each of them sees; broadcasts to [B, Hq, a, a]. None: causal.
  Mask mask = {};
  std::optional<mx::array> sinks = std::nullopt; ///< [Hq]
};

struct Recalled {
  Rows rows;     ///< new buffers if any rows came back, otherwise the old ones
  Ledger ledger; ///< with `held`
  int count;     ///< rows that came back, all heads together
};

/// Brings back the rows that a prompt asks for. This happens just before its last tokens
/// are written: their queries choose up to M positions for each KV head. Chosen positions
/// that were evicted replace the least important unprotected rows. Exactly the chosen
/// rows are then held: eviction skips them until the next recall.
///
/// For a single asking token, the ledger's victim counts as evicted, because the token
/// will overwrite it. In a cache with a ring, that write also moves one row to the pool, so
/// the result's `held` already describes the rows after the write.
///
/// An archive whose files cannot be read sets its `failure`, and nothing changes.
///
/// Evaluates its arguments. Keeps the logits of one KV head in memory (on a GPU, up to 32
/// MiB).
///
/// Args:
///   cache: its state before the asking tokens.
///   also: int32 [B, M], further positions to hold, as for `bring_back`. Each head then
///     chooses only half as many positions of its own.
///   in_operations: for tests, computes logits with MLX operations, as on a GPU.
Recalled recall(
    const Asking& asking,
    const ArchivedCache& cache,
    const std::optional<mx::array>& also,
    const CacheConfig& config,
    bool in_operations = false,
    mx::StreamOrDevice s = {});

/// Brings back the positions that were chosen for all layers, after the asking tokens and
/// before the next one. In each KV head, the positions that the head does not keep replace
/// its least important unprotected rows. Exactly the chosen positions are then held, and
/// the ledger's victim is chosen again. A token whose archived key is not finite is
/// skipped.
///
/// `positions` is int32 [B, M], the best first; -1 stands for none. The last positions are
/// skipped if there are more than `recall_rows`, or too few rows that may be evicted. An
/// archive whose files cannot be read sets its `failure`, and nothing changes.
Recalled bring_back(
    const mx::array& positions,
    const ArchivedCache& cache,
    const CacheConfig& config,
    mx::StreamOrDevice s = {});

/// Chooses the positions to bring back in each sequence by the rule of `Recall`: int32
/// [B, M], the best first, -1 if there are fewer. Evaluates its argument.
///
/// Args:
///   asked_for: float32 [B, N], the votes of each position from `first` on.
///   first: the first position.
///   seen: number of tokens so far. The newest `recent_budget` of them, sinks and pinned
///     positions are in the cache anyway.
///   rows: M, at least 1.
mx::array chosen_positions(
    const mx::array& asked_for,
    int first,
    int seen,
    int rows,
    const Policy& policy,
    const Recall& recall,
    mx::StreamOrDevice s = {});

// Attention of a prompt's last tokens to all earlier tokens: tokens in the cache are read
// from its rows, evicted tokens from the archive.

struct Reading {
  mx::array out; ///< [B, Hq, a, Dv] in the dtype of the queries
  mx::array
      strongest; ///< float32 [B, Hq, N]: of each archived position, from its first, the
                 ///< largest probability that one of the queries gives it
};

/// The result is exact: it equals, up to rounding, attention over all positions at once.
/// Positions that a KV head keeps are read from the cache, all others from the archive.
/// No query sees a key that is not finite.
///
/// Reads the archive twice, in tiles of whole segments: first for outputs, largest logits
/// and sums, which are merged tile by tile, then for probabilities, which need the final
/// sums. Keeps logits and widened rows of two tiles in memory. Returns none if an archive
/// in files cannot be read; its `failure` says why.
///
/// `values` [B, Hkv, a, Dv] are the values of the asking tokens, which `cache` does not
/// contain yet.
std::optional<Reading> read_everything(
    const Asking& asking,
    const mx::array& values,
    const ArchivedCache& cache,
    const CacheConfig& config,
    mx::StreamOrDevice s = {});

} // namespace h2o
