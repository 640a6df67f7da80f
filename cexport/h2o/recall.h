#pragma once

#include "archive.h"

namespace h2o {

struct RecallArguments {
  mx::array queries; ///< [B, Hq, a, Dk], of the tokens that ask
  mx::array keys;    ///< [B, Hkv, a, Dk], theirs, which are not written yet
  Rows rows;
  Ledger ledger;
  Archive& archive; ///< of all tokens before them
  int offset;       ///< tokens seen before them
  float scale = 1.0f;
  Mask mask =
      {}; ///< broadcasts to [B, Hq, a, a], what they see of each other; none: causal
  std::optional<mx::array> sinks = std::nullopt; ///< [Hq]
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

namespace fallback {

/// The same with the logits in MLX operations, as on a GPU.
Recalled recall(
    const RecallArguments& arguments, const CacheConfig& config, mx::StreamOrDevice s);

} // namespace fallback
} // namespace h2o
