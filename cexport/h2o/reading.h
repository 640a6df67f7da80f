#pragma once

#include "recall.h"

/// Attention of a prompt's last tokens to everything there is: the rows that the cache keeps,
/// and what it evicted from the archive.
namespace h2o {

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
