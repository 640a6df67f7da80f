#include "recall_swap.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "cpu_attention.h"

namespace h2o {

RowSwap::RowSwap(
    CacheStep step, const Archive& archive, ArchiveReader& reader, Layouts layouts)
    : step_(std::move(step)),
      archive_(reader),
      layouts_(std::move(layouts)),
      element_(cpu::element_of(archive.format().dtype)),
      spread_(archive.recall().spread) {
}

bool RowSwap::is_protected(int position) const {
  const Policy& policy = step_.config;
  if (position < policy.sink_size || position >= step_.seen() - policy.recent_budget) {
    return true;
  }
  for (auto [begin, end] : policy.pinned) {
    if (position >= begin && position < end) {
      return true;
    }
  }
  return false;
}

bool RowSwap::is_there(const HeadEntries& entries, int entry) const {
  const int in_ring = entry - step_.config.pool_rows(), seen = step_.offset;
  const bool has_row =
      in_ring < 0 ? entry < step_.pool_length(seen) : in_ring < step_.ring_length(seen);
  const int position = entries.positions[entry];
  const bool is_going = step_.is_single() && entry == entries.victim;
  return has_row && position >= 0 && position < seen && !is_going;
}

/// The largest relevance among each position and the `spread` before it.
void RowSwap::spread(const std::vector<float>& relevance) {
  const int count = int(relevance.size());
  spread_relevance_.resize(count);
  std::deque<int> best; // falling relevance, each the largest of what follows it
  for (int j = 0; j < count; ++j) {
    while (!best.empty() && relevance[best.back()] <= relevance[j]) {
      best.pop_back();
    }
    best.push_back(j);
    if (j - best.front() > spread_) {
      best.pop_front();
    }
    spread_relevance_[j] = relevance[best.front()];
  }
}

std::vector<int> RowSwap::choose(const std::vector<float>& relevance, int wanted) {
  spread(relevance);
  std::vector<int> chosen;
  for (int j = 0; j < int(relevance.size()); ++j) {
    const int position = archive_.first() + j;
    if (relevance[j] >= 0.0f && spread_relevance_[j] > 0.0f && !is_protected(position)) {
      chosen.push_back(position);
    }
  }
  if (int(chosen.size()) > wanted) {
    std::nth_element(
        chosen.begin(), chosen.begin() + wanted, chosen.end(), [&](int a, int b) {
          const float left = relevance_of(a), right = relevance_of(b);
          return left != right ? left > right : a < b;
        });
    chosen.resize(wanted);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
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
  auto at = resident.begin();
  for (int position : chosen) {
    while (at != resident.end() && at->first < position) {
      ++at;
    }
    if (at != resident.end() && at->first == position) {
      stays_[at->second] = 1;
    } else {
      incoming.push_back(position);
    }
  }
  std::copy(stays_.begin(), stays_.end(), entries.held);

  const auto victims = least_important(entries, incoming.size());
  if (victims.size() < incoming.size()) {
    std::stable_sort(incoming.begin(), incoming.end(), [&](int a, int b) {
      return relevance_of(a) > relevance_of(b);
    });
    incoming.resize(victims.size());
    std::sort(incoming.begin(), incoming.end());
  }
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
