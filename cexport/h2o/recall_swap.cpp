#include "recall_swap.h"

#include <algorithm>
#include <cmath>

#include "policy.h"

namespace h2o {

RowSwap::RowSwap(
    CacheStep step, const Archive& archive, ArchiveReader& reader, Layouts layouts)
    : step_(std::move(step)),
      archive_(reader),
      layouts_(std::move(layouts)),
      element_(cpu::element_of(archive.format().dtype)) {
}

bool RowSwap::is_there(const HeadEntries& entries, int entry) const {
  const int in_ring = entry - step_.config.pool_rows(), seen = step_.offset;
  const bool has_row =
      in_ring < 0 ? entry < step_.pool_length(seen) : in_ring < step_.ring_length(seen);
  const int position = entries.positions[entry];
  const bool is_going = step_.is_single() && entry == entries.victim;
  return has_row && position >= 0 && position < seen && !is_going;
}

std::vector<int> RowSwap::with_finite_keys(const std::vector<int>& positions, int head) {
  // In order of position, so that a segment in a file is read once.
  std::vector<int> hidden = positions;
  std::sort(hidden.begin(), hidden.end());
  const int dim = layouts_.pool.key.dim;
  widened_.resize(dim);
  std::erase_if(hidden, [&](int position) {
    const int n = position - archive_.first();
    const auto keys = archive_.keys(n / segment_tokens, head);
    cpu::to_float32(cpu::row_at(keys, n % segment_tokens), 1, dim, widened_.data(), dim);
    return std::all_of(
        widened_.begin(), widened_.end(), [](float x) { return std::isfinite(x); });
  });
  std::vector<int> finite = positions;
  std::erase_if(finite, [&](int position) {
    return std::binary_search(hidden.begin(), hidden.end(), position);
  });
  return finite;
}

/// Up to `count` entries of the least importance, but those of `stays_`, by entry.
std::vector<int> RowSwap::least_important(const HeadEntries& entries, size_t count) {
  const Policy& policy = step_.config;
  const int size = policy.max_size;
  scores_.assign(entries.scores, entries.scores + size);
  for (int entry = 0; entry < size; ++entry) {
    if (!is_there(entries, entry)) {
      scores_[entry] = -1.0f;
      stays_[entry] = 1;
    }
  }
  importance_.resize(size);
  cpu::importance(
      policy, {scores_.data(), entries.positions, entries.novelty, nullptr, stays_.data()},
      size, step_.seen() - policy.recent_budget, importance_.data());
  std::vector<int> found;
  for (int entry = 0; entry < size; ++entry) {
    if (importance_[entry] != std::numeric_limits<float>::infinity()) {
      found.push_back(entry);
    }
  }
  count = std::min(count, found.size());
  std::partial_sort(found.begin(), found.begin() + count, found.end(), [&](int a, int b) {
    return importance_[a] != importance_[b] ? importance_[a] < importance_[b]
                                            : entries.positions[a] < entries.positions[b];
  });
  found.resize(count);
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<RowSwap::Move> RowSwap::place(
    const std::vector<int>& chosen, const HeadEntries& entries) {
  const int size = step_.config.max_size;
  std::vector<std::pair<int, int>> resident; // position and entry
  for (int entry = 0; entry < size; ++entry) {
    if (is_there(entries, entry)) {
      resident.emplace_back(entries.positions[entry], entry);
    }
  }
  std::sort(resident.begin(), resident.end());
  stays_.assign(size, 0);
  std::vector<int> incoming;
  for (int position : chosen) {
    const auto at =
        std::lower_bound(resident.begin(), resident.end(), std::make_pair(position, 0));
    if (at != resident.end() && at->first == position) {
      stays_[at->second] = 1;
    } else {
      incoming.push_back(position);
    }
  }
  std::copy(stays_.begin(), stays_.end(), entries.held);

  const auto victims = least_important(entries, incoming.size());
  incoming.resize(victims.size());
  std::sort(incoming.begin(), incoming.end());
  std::vector<Move> moves;
  for (size_t k = 0; k < incoming.size(); ++k) {
    moves.push_back({incoming[k], victims[k]});
    entries.held[victims[k]] = 1;
  }
  if (step_.leaves_ring()) {
    // The write moves this slot's row to the pool, and the token that takes it is not held.
    const int slot = step_.config.pool_rows() + step_.first_row();
    const int row = step_.pool_row_for_leaving(entries.victim);
    if (row >= 0) {
      entries.held[row] = entries.held[slot];
    }
    entries.held[slot] = 0;
  }
  return moves;
}

int RowSwap::next_victim(const HeadEntries& entries) {
  const Policy& policy = step_.config;
  importance_.resize(policy.max_size);
  return cpu::choose_victim(
      policy, {entries.scores, entries.positions, entries.novelty, nullptr, entries.held},
      policy.max_size, step_.seen() + 1 - policy.recent_budget, importance_.data());
}

void RowSwap::store(const VectorLayout& layout, cpu::RowsView vector, char* row) {
  // Rounded to the vectors' own dtype in between, as a new token's come.
  const int dim = layout.dim;
  widened_.resize(2 * dim);
  float* rounded = widened_.data() + dim;
  cpu::to_float32(vector, 1, dim, widened_.data(), dim);
  cpu::from_float32(widened_.data(), dim, element_, rounded);
  layout.store({rounded, element_, 0}, row, packing_);
}

void RowSwap::write(
    const std::vector<Move>& moves, int head, const HeadEntries& entries, Rows& rows) {
  const int pool_rows = step_.config.pool_rows();
  for (auto [position, entry] : moves) {
    const ArchivedRow archived = archive_.row(position, head);
    const bool in_ring = entry >= pool_rows;
    auto& buffer = in_ring ? *rows.ring : rows.pool;
    const RowLayout& layout = in_ring ? *layouts_.ring : layouts_.pool;
    const int row = in_ring ? entry - pool_rows : entry;
    char* to =
        buffer.data<char>() + (int64_t(head) * buffer.shape(2) + row) * layout.bytes();
    store(layout.key, archived.key, to);
    store(layout.value, archived.value, to);
    entries.scores[entry] = -1.0f;
    entries.positions[entry] = position;
    entries.novelty[entry] = archived.novelty;
  }
}

} // namespace h2o
