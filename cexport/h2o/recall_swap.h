#pragma once

#include "archive.h"
#include "cache_step.h"

/// Which positions come back, and which rows make place for them, of one KV head.
namespace h2o {

/// The ledger of one KV head, which the swap changes.
struct HeadEntries {
  float* scores;
  int32_t* positions;
  float* novelty;
  uint8_t* held;
  int victim; // the row that a single asking token takes
};

class RowSwap {
 public:
  /// `step` is that of the asking tokens.
  RowSwap(CacheStep step, const Archive& archive, ArchiveReader& reader, Layouts layouts);

  /// Leaves those out whose archived key is not finite.
  std::vector<int> with_finite_keys(const std::vector<int>& positions, int head);

  struct Move {
    int position;
    int entry; // that it takes
  };

  /// Makes `held` true for the entries of all chosen rows, the best of which is first. Those
  /// that are not in the cache come over the least important rows; if there are too few of
  /// them, the last stay out.
  std::vector<Move> place(const std::vector<int>& chosen, const HeadEntries& entries);

  /// Writes the rows that come, and what the ledger says of them.
  void write(
      const std::vector<Move>& moves, int head, const HeadEntries& entries, Rows& rows);

  /// The row that the token after the step takes.
  int next_victim(const HeadEntries& entries);

 private:
  CacheStep step_;
  ArchiveReader& archive_;
  Layouts layouts_;
  cpu::Element element_; // of keys and values
  std::vector<float> importance_, scores_, widened_, packing_;
  std::vector<uint8_t> stays_;

  /// Whether an entry has a row now, and keeps it when the asking tokens are written.
  bool is_there(const HeadEntries& entries, int entry) const;
  std::vector<int> least_important(const HeadEntries& entries, size_t count);
  void store(const VectorLayout& layout, cpu::RowsView vector, char* row);
};

} // namespace h2o
