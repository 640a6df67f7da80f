#pragma once

#include "functions.h"

/// A cache of two precisions: the newest tokens in a ring of `recent_budget` rows at
/// `recent_bits`, all others in a pool of C - `recent_budget` rows at `heavy_bits`. Same
/// policy and same kept positions as a cache of one precision with the same scores.
///
/// The token of position p lies in ring slot p % recent_budget until as many newer ones
/// have come; then it moves into the pool, over the victim if that is full. The ledger's
/// rows are the pool's, then the ring's slots.
namespace h2o {

struct MixedConfig {
  CacheConfig policy; // its format is not asked
  int heavy_bits;
  int recent_bits;
  int group_size;
  mx::Dtype dtype; // of keys and values

  RowFormat pool_format() const {
    return {heavy_bits, heavy_bits, group_size, dtype};
  }
  RowFormat ring_format() const {
    return {recent_bits, recent_bits, group_size, dtype};
  }
  int ring_rows() const {
    return policy.recent_budget;
  }
  int pool_rows() const {
    return policy.max_size - policy.recent_budget;
  }
};

void validate(const MixedConfig& config);

/// Rows in use once `offset` tokens have been seen.
int ring_length(const MixedConfig& config, int offset);
int pool_length(const MixedConfig& config, int offset);

/// Where the token that leaves the ring goes once `offset` tokens have been seen: a free row
/// of the pool, the victim's, or -1 where it is the victim itself.
int pool_row_for_leaving(const MixedConfig& config, int offset, int victim);

struct MixedRows {
  mx::array pool; ///< [B, Hkv, capacity, heavy row]
  mx::array ring; ///< [B, Hkv, capacity, recent row]; a chunk stands after the old rows
};

/// The rows with keys [B, Hkv, L, Dk] and values [B, Hkv, L, Dv] put in: one token takes
/// the slot of the oldest recent one, which moves to the pool; several wait behind the
/// ring until their attention. Buffers are shared as in cache_write.
MixedRows mixed_cache_write(
    const std::optional<MixedRows>& rows,
    const mx::array& keys,
    const mx::array& values,
    const mx::array& victim,
    int offset,
    const MixedConfig& config,
    bool copy = false,
    mx::StreamOrDevice s = {});

struct MixedAttended {
  std::optional<mx::array> out;
  MixedRows rows;
  Ledger ledger;
};

/// As cache_attend.
MixedAttended mixed_cache_attend(
    const std::optional<mx::array>& queries,
    const MixedRows& rows,
    const Ledger& ledger,
    int tokens,
    int offset,
    int key_dim,
    int value_dim,
    float scale,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    const MixedConfig& config,
    mx::StreamOrDevice s = {});

/// Keys and values of the first `pooled` rows of the pool and `ringed` of the ring, in the
/// configuration's dtype: for attention that is computed elsewhere.
std::pair<mx::array, mx::array> mixed_fetch(
    const MixedRows& rows,
    int pooled,
    int ringed,
    int key_dim,
    const MixedConfig& config,
    mx::StreamOrDevice s = {});

} // namespace h2o
