#pragma once

#include "archive.h"

/// Attention to the positions of an archive that a cache has evicted.
namespace h2o {

/// Queries that read an archive.
struct Reading {
  mx::array queries; ///< [B, Hq, a, Dk], rotated if the rows are
  float scale;
  mx::array kept; ///< int32 [B, Hkv, C], the positions in the head's rows; -1: none
  int end;        ///< reads positions below this one
  bool in_operations = false; ///< for tests: reads tokens as on a GPU
};

/// What queries read from two sets of keys, as if they had read both as one.
Elsewhere joined(const Elsewhere& a, const Elsewhere& b, mx::StreamOrDevice s = {});

/// Reads all positions that the head's rows do not have, in tiles of whole segments and blocks of
/// queries, so that logits are never stored whole. No query sees a key that is not finite.
/// Evaluates block by block. None if an archive in files cannot be read; its `failure` says why.
std::optional<Elsewhere> read_everything(
    const Reading& reading, const Archive& archive, mx::StreamOrDevice s = {});

/// Reads for each token and KV head, of the positions that the head's rows do not have, the
/// `reach` whose sketched keys match the token's queries best: those with the largest of
///   max over the head's query heads of scale * q . sketch
/// where ties go to the lowest position, or on a GPU to any. Evaluates nothing:
/// the CPU reads the rows when the graph is evaluated. If an archive in files cannot
/// be read then, the head reads nothing, and the archive's `failure` says why.
std::optional<Elsewhere> read_matching(
    const Reading& reading, int reach, const Archive& archive, mx::StreamOrDevice s = {});

/// The positions that read_matching reads for one token: int32 [B, Hkv, reach], -1 for none.
mx::array matching_positions(
    const Reading& reading, int reach, const Archive& archive, mx::StreamOrDevice s = {});

} // namespace h2o
