#pragma once

#include "functions.h"
#include "row_layout.h"
#include "segment_file.h"

namespace h2o {

/// Tokens as a cache is given them, and its ledger's key_sum from before them.
struct ArchivePiece {
  mx::array keys;    // [B, Hkv, L, Dk]
  mx::array values;  // [B, Hkv, L, Dv]
  mx::array key_sum; // float32 [B, Hkv, Dk]
};

/// Consecutive positions of an archive, row by row.
struct ArchiveBlock {
  mx::array rows;    // [B, Hkv, n, row], as a pool of its format has them
  mx::array novelty; // float32 [B, Hkv, n]

  int count() const {
    return rows.shape(2);
  }
};

/// What follows when tokens come after `tail`, a block of less than a segment if there is
/// one: segments, and one of what is left. `position` is that of the first
/// piece's first token, and `format` has no ring. Nothing is evaluated here.
///
/// A token's novelty is what a ledger would enter for its key as given. A key that is not
/// finite in some element is packed as zeros with biases of NaN, so that it stays not finite.
std::vector<ArchiveBlock> pack_archive(
    const std::optional<ArchiveBlock>& tail,
    const std::vector<ArchivePiece>& pieces,
    int position,
    const RowFormat& format,
    const Policy& policy,
    mx::StreamOrDevice s);

} // namespace h2o
