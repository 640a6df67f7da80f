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

  /// The positions to have, ascending: those of most relevance, a successor's within
  /// `spread` included; ties to the lowest. Protected ones are there anyway.
  std::vector<int> choose(const std::vector<float>& relevance, int wanted);

  struct Move {
    int position;
    int entry; // that it takes
  };

  /// Makes `held` true for the entries of all chosen rows. Those that are not in the cache
  /// come over the least important rows; if there are too few of them, the least relevant
  /// stay out.
  std::vector<Move> place(const std::vector<int>& chosen, const HeadEntries& entries);

  /// Writes the rows that come, and what the ledger says of them.
  void write(
      const std::vector<Move>& moves, int head, const HeadEntries& entries, Rows& rows);

 private:
  CacheStep step_;
  ArchiveReader& archive_;
  Layouts layouts_;
  cpu::Element element_; // of keys and values
  int spread_;
  std::vector<float> spread_relevance_, importance_, scores_, widened_, packing_;
  std::vector<uint8_t> stays_;

  float relevance_of(int position) const {
    return spread_relevance_[position - archive_.first()];
  }
  bool is_protected(int position) const;
  /// Whether an entry has a row now, and keeps it when the asking tokens are written.
  bool is_there(const HeadEntries& entries, int entry) const;
  void spread(const std::vector<float>& relevance);
  std::vector<int> least_important(const HeadEntries& entries, size_t count);
  void store(const VectorLayout& layout, cpu::RowsView vector, char* row);
};

} // namespace h2o
