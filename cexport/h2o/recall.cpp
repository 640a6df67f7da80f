#include "recall.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "archive.h"
#include "cache_step.h"
#include "choice.h"
#include "cpu_attention.h"
#include "fallback.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"
#include "policy.h"
#include "primitives.h"
#include "row_layout.h"

namespace h2o {

/// The ledger of one KV head, which a swap of rows changes.
struct HeadEntries {
  float* scores;
  int32_t* positions;
  float* novelty;
  uint8_t* held;
  int victim; // the row that a single asking token will overwrite
};

class RowSwap {
 public:
  /// `step`: the step of the asking tokens.
  RowSwap(CacheStep step, ArchiveReader& archive, Layouts layouts)
      : step_(std::move(step)), archive_(archive), layouts_(std::move(layouts)) {
  }

  /// Removes positions whose archived key is not finite.
  std::vector<int> with_finite_keys(const std::vector<int>& positions, int head) {
    // In order of position, so that each segment in a file is read once.
    std::vector<int> hidden = positions;
    std::sort(hidden.begin(), hidden.end());
    const int dim = layouts_.pool.key.dim;
    widened_.resize(dim);
    std::erase_if(hidden, [&](int position) {
      const int n = position - archive_.first();
      const auto keys = archive_.keys(n / segment_tokens, head);
      cpu::kernels().to_float32(
          cpu::row_at(keys, n % segment_tokens), 1, dim, widened_.data(), dim);
      return std::all_of(
          widened_.begin(), widened_.end(), [](float x) { return std::isfinite(x); });
    });
    std::vector<int> finite = positions;
    std::erase_if(finite, [&](int position) {
      return std::binary_search(hidden.begin(), hidden.end(), position);
    });
    return finite;
  }

  struct Move {
    int position;
    int entry; // the entry of the ledger that the position takes
  };

  /// Sets `held` for the entries of all chosen positions, the best of which come first.
  /// Positions that are not in the cache overwrite the least important rows; if there are
  /// too few such rows, the last positions are skipped.
  std::vector<Move> place(const std::vector<int>& chosen, const HeadEntries& entries) {
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
      // The write moves this slot's row to the pool, and the new token in the slot is not
      // held.
      const int slot = step_.config.pool_rows() + step_.first_row();
      const int row = step_.pool_row_for_leaving(entries.victim);
      if (row >= 0) {
        entries.held[row] = entries.held[slot];
      }
      entries.held[slot] = 0;
    }
    return moves;
  }

  /// Writes the recalled rows and their entries in the ledger.
  void write(
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
      layout.key.store_rounded(archived.key, to, widened_, packing_);
      layout.value.store_rounded(archived.value, to, widened_, packing_);
      entries.scores[entry] = -1.0f;
      entries.positions[entry] = position;
      entries.novelty[entry] = archived.novelty;
    }
  }

  /// The row that the token after the step overwrites.
  int next_victim(const HeadEntries& entries) {
    const Policy& policy = step_.config;
    importance_.resize(policy.max_size);
    return cpu::choose_victim(
        policy, {entries.scores, entries.positions, entries.novelty, nullptr, entries.held},
        policy.max_size, step_.seen() + 1 - policy.recent_budget, importance_.data());
  }

 private:
  CacheStep step_;
  ArchiveReader& archive_;
  Layouts layouts_;
  std::vector<float> importance_, scores_, widened_, packing_;
  std::vector<uint8_t> stays_;

  /// Whether an entry has a row, and still has it after the asking tokens are written.
  bool is_there(const HeadEntries& entries, int entry) const {
    const int in_ring = entry - step_.config.pool_rows(), seen = step_.offset;
    const bool has_row =
        in_ring < 0 ? entry < step_.pool_length(seen) : in_ring < step_.ring_length(seen);
    const int position = entries.positions[entry];
    const bool is_going = step_.is_single() && entry == entries.victim;
    return has_row && position >= 0 && position < seen && !is_going;
  }

  /// Up to `count` entries of least importance that are not in `stays_`, in order of entry.
  std::vector<int> least_important(const HeadEntries& entries, size_t count) {
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
    cpu::kernels().importance(
        policy,
        {scores_.data(), entries.positions, entries.novelty, nullptr, stays_.data()}, size,
        step_.seen() - policy.recent_budget, importance_.data());
    std::vector<int> picks;
    for (int entry = 0; entry < size; ++entry) {
      if (importance_[entry] != infinity) {
        picks.push_back(entry);
      }
    }
    count = std::min(count, picks.size());
    std::partial_sort(picks.begin(), picks.begin() + count, picks.end(), [&](int a, int b) {
      return importance_[a] != importance_[b] ? importance_[a] < importance_[b]
                                              : entries.positions[a] < entries.positions[b];
    });
    picks.resize(count);
    std::sort(picks.begin(), picks.end());
    return picks;
  }
};

namespace recalling {

/// The most lines of queries that read packed keys. More lines read the keys in float32,
/// which are then unpacked only once.
constexpr int few_lines = 8;

/// Computes a number for each position of an archive, from the first position on: the
/// largest, over the queries, of the mean attention probability in the head group.
/// Probabilities are over all archived positions and the asking tokens. The number is -1 if
/// no logit of the position is finite.
///
/// Works on one KV head at a time and keeps its logits, Hq / Hkv * a * positions floats.
/// Reads the packed archive once and widens 256 positions at a time.
class RelevanceOfHeads {
 public:
  RelevanceOfHeads(const Asking& asking, ArchiveReader& archive)
      : asking_(asking), archive_(archive) {
  }

  /// `relevance` has a float for each position of the archive.
  void compute(int batch, int head, float* relevance) {
    const auto& sinks = asking_.sinks;
    const int asks = asking_.queries.shape(2);
    const int group = asking_.queries.shape(1) / asking_.keys.shape(1);
    const int archived = archive_.end() - archive_.first(), rows = archived + asks;
    compute_logits(batch, head, rows);
    most_.assign(rows, lowest);
    mean_.resize(archived);
    std::fill_n(relevance, archived, 0.0f);
    for (int l = 0; l < asks; ++l) {
      std::fill(mean_.begin(), mean_.end(), 0.0f);
      for (int g = 0; g < group; ++g) {
        float* logits = &logits_[size_t(g * asks + l) * rows];
        float most = cpu::kernels().hide_not_finite(logits, rows, most_.data());
        const float sink = sinks ? cpu::load_sink(*sinks, head * group + g) : lowest;
        most = std::max(most, sink);
        if (most == lowest) {
          continue; // this query sees no position
        }
        float sum = cpu::kernels().exp_shifted(logits, most, rows, logits);
        sum += sinks ? std::exp(sink - most) : 0.0f;
        cpu::kernels().add_scaled(
            logits, 1.0f / (sum * float(group)), archived, mean_.data());
      }
      for (int j = 0; j < archived; ++j) {
        relevance[j] = std::max(relevance[j], mean_[j]);
      }
    }
    for (int j = 0; j < archived; ++j) {
      relevance[j] = most_[j] == lowest ? -1.0f : relevance[j];
    }
  }

 private:
  const Asking& asking_;
  ArchiveReader& archive_;
  std::vector<float> queries_, logits_, wide_, most_, mean_, storage_;

  void compute_logits(int batch, int head, int64_t stride) {
    const auto& [queries, keys, scale, mask, sinks] = asking_;
    const int asks = queries.shape(2), dim = queries.shape(3);
    const int group = queries.shape(1) / keys.shape(1), lines = group * asks;
    const int heads = keys.shape(1);
    queries_.resize(size_t(lines) * dim);
    for (int g = 0; g < group; ++g) {
      for (int l = 0; l < asks; ++l) {
        cpu::load_query(
            queries, batch, head * group + g, l, scale,
            &queries_[size_t(g * asks + l) * dim]);
      }
    }
    logits_.resize(size_t(lines) * stride);
    wide_.resize(size_t(segment_tokens) * dim);
    float* out = logits_.data();
    auto dot = [&](cpu::RowsView rows, int count) {
      cpu::kernels().dot_rows(queries_.data(), lines, rows, count, dim, out, stride);
      out += count;
    };
    for (size_t block = 0; block < archive_.blocks(); ++block) {
      const int count = archive_.count(block);
      if (lines <= few_lines) {
        dot(archive_.keys(block, batch * heads + head), count);
        continue;
      }
      cpu::kernels().to_float32(
          archive_.keys(block, batch * heads + head), count, dim, wide_.data(), dim);
      dot({wide_.data(), cpu::Element::float32, dim * int64_t(sizeof(float))}, count);
    }
    dot(cpu::rows_of(keys, batch, head, storage_), asks);

    const int64_t archived = stride - asks;
    cpu::MaskView values;
    if (mask.values) {
      values = {*mask.values, {queries.shape(0), queries.shape(1), asks, asks}};
    }
    for (int g = 0; g < group; ++g) {
      for (int l = 0; l < asks; ++l) {
        float* own = &logits_[size_t(g * asks + l) * stride + archived];
        if (values) {
          values.apply(batch, head * group + g, l, asks, /* low_bias_hides */ true, own);
        } else {
          std::fill(own + l + 1, own + asks, lowest);
        }
      }
    }
  }
};

/// The most bytes of logits at a time.
constexpr int64_t logits_bytes = 32 << 20;

/// Far below every real logit, and far above the logit of a hidden row.
constexpr float below_every_logit = -1e30f;

/// Logits [B, heads, Hq / Hkv * a, positions] of queries [.., Dk], which are scaled.
mx::array archive_logits(
    const mx::array& queries, Archive& archive, int head, int last, mx::StreamOrDevice s) {
  const RowFormat& format = archive.format();
  const VectorLayout key = archive.layout().key;
  const int blocks = int(archive.blocks(s).size()) + archive.files().stored();
  const mx::array packed = archive.packed_keys(head, last, 0, blocks, s);
  if (format.is_dense()) {
    auto keys = mx::astype(packed, mx::float32, s);
    return mx::matmul(queries, mx::swapaxes(keys, 2, 3, s), s);
  }
  const int words = int(key.scales() / 4);
  auto both = sliced(packed, 3, words, packed.shape(3), s);
  both =
      mx::astype(mx::view(mx::contiguous(both, false, s), format.dtype, s), mx::float32, s);
  auto halves = mx::split(both, 2, 3, s);
  return mx::quantized_matmul(
      queries, sliced(packed, 3, 0, words, s), halves[0], halves[1], true, key.group_size,
      key.bits, "affine", s);
}

/// Computes the same numbers with MLX operations, for a GPU: [B, Hkv, positions]. Processes
/// several heads at once if their logits take at most 32 MiB. Evaluates nothing.
mx::array relevance_in_operations(
    const Asking& asking, Archive& archive, mx::StreamOrDevice s) {
  const auto& [queries, keys, scale, mask, sinks] = asking;
  const int batch = queries.shape(0), asks = queries.shape(2), dim = queries.shape(3);
  const int kv_heads = keys.shape(1), group = queries.shape(1) / kv_heads;
  const int archived = archive.length() - archive.first(), rows = archived + asks;
  auto scaled = mx::multiply(mx::astype(queries, mx::float32, s), mx::array(scale), s);
  scaled = mx::reshape(scaled, {batch, kv_heads, group * asks, dim}, s);
  const Mask own_mask = mask.values ? mask : Mask{true};
  auto own = mx::reshape(
      fallback::masked_logits(queries, keys, scale, own_mask, asks, true, s),
      {batch, kv_heads, group * asks, asks}, s);
  const int64_t head_bytes = int64_t(batch) * group * asks * rows * 4;
  const int together = int(
      std::clamp<int64_t>(logits_bytes / std::max<int64_t>(1, head_bytes), 1, kv_heads));

  std::vector<mx::array> parts;
  for (int head = 0; head < kv_heads; head += together) {
    const int last = std::min(kv_heads, head + together);
    auto of_heads = [&](const mx::array& a) {
      return sliced(a, 1, head, last, s);
    };
    auto older = archive_logits(of_heads(scaled), archive, head, last, s);
    // For a query that sees no row, all probability goes to a column behind the rows.
    auto behind = mx::array(below_every_logit);
    if (sinks) {
      behind = of_heads(
          mx::reshape(mx::astype(*sinks, mx::float32, s), {1, kv_heads, group, 1}, s));
    }
    behind = mx::reshape(
        mx::broadcast_to(behind, {batch, last - head, group, asks}, s),
        {batch, last - head, group * asks, 1}, s);
    auto all = mx::concatenate({older, of_heads(own), behind}, 3, s);
    auto finite = mx::isfinite(all, s);
    auto p = mx::softmax(mx::where(finite, all, mx::array(lowest), s), -1, true, s);
    const mx::Shape grouped{batch, last - head, group, asks, rows + 1};
    auto relevance =
        mx::max(mx::mean(mx::reshape(p, grouped, s), 2, false, s), 2, false, s);
    auto is_seen =
        mx::any(mx::reshape(finite, grouped, s), std::vector<int>{2, 3}, false, s);
    relevance = mx::where(is_seen, relevance, mx::array(-1.0f), s);
    parts.push_back(mx::contiguous(sliced(relevance, 2, 0, archived, s), false, s));
    mx::eval(parts.back()); // one group of heads after the other
  }
  return mx::concatenate(parts, 1, s);
}

mx::array copy_of(const mx::array& a) {
  auto copy = host_array(a.shape(), a.dtype());
  std::memcpy(copy.data<char>(), a.data<char>(), a.nbytes());
  return copy;
}

mx::array copy_of_rows(const mx::array& a) {
  auto copy = host_array(a.shape(), a.dtype());
  copy_rows(a, a.shape(2), copy);
  return copy;
}

/// Evaluates the cache and the other arrays, and makes the ledger's arrays contiguous.
ArchivedCache evaluated(
    const ArchivedCache& cache, std::vector<mx::array> others, mx::StreamOrDevice s) {
  ArchivedCache ready = cache;
  auto& ledger = ready.ledger;
  for (auto* a : {&ledger.scores, &ledger.positions, &ledger.novelty, &ledger.victim}) {
    *a = mx::contiguous(*a, false, s);
  }
  if (!ledger.held) {
    ledger.held = mx::zeros(ledger.scores.shape(), mx::bool_, s);
  }
  for (const auto& arrays : {arrays_of(ready.rows), arrays_of(ledger)}) {
    others.insert(others.end(), arrays.begin(), arrays.end());
  }
  for (const auto& block : ready.archive.blocks(s)) {
    others.insert(others.end(), {block.rows, block.novelty});
  }
  mx::eval(others);
  return ready;
}

/// Brings back the positions that `choose(swap, b, h)` returns for each head, and holds
/// them. Nothing changes if the archive fails.
template <class Choose>
Recalled swapped(
    const ArchivedCache& cache,
    const ArchivedCache& ready,
    const CacheStep& step,
    ArchiveReader& reader,
    Choose choose) {
  const int size = step.config.max_size, kv_heads = ready.archive.kv_heads();
  const Ledger& ledger = ready.ledger;
  Ledger next = ledger;
  next.scores = copy_of(ledger.scores);
  next.positions = copy_of(ledger.positions);
  next.novelty = copy_of(ledger.novelty);
  next.held = host_array(ledger.scores.shape(), mx::bool_);
  std::memset(next.held->data<char>(), 0, next.held->nbytes());
  if (step.tokens == 0) {
    next.victim = copy_of(ledger.victim);
  }
  Recalled result{cache.rows, next, 0};
  if (ready.archive.failure()) {
    return result;
  }
  const Layouts layouts =
      layouts_of("recall", step.config.format, cache.rows, ready.archive.key_dim());
  RowSwap swap(step, reader, layouts);
  for (int b = 0; b < ready.archive.batch(); ++b) {
    for (int h = 0; h < kv_heads; ++h) {
      const int head = b * kv_heads + h;
      const auto chosen = choose(swap, b, h);
      const int64_t at = int64_t(head) * size;
      HeadEntries entries{
          next.scores.data<float>() + at, next.positions.data<int32_t>() + at,
          next.novelty.data<float>() + at,
          reinterpret_cast<uint8_t*>(next.held->data<bool>()) + at,
          ledger.victim.data<int32_t>()[head]};
      const auto moves = swap.place(chosen, entries);
      if (!moves.empty() && result.count == 0) {
        result.rows.pool = copy_of_rows(ready.rows.pool);
        if (ready.rows.ring) {
          result.rows.ring = copy_of_rows(*ready.rows.ring);
        }
      }
      result.count += int(moves.size());
      swap.write(moves, head, entries, result.rows);
      if (step.tokens == 0) {
        next.victim.data<int32_t>()[head] = swap.next_victim(entries);
      }
    }
  }
  if (ready.archive.failure()) {
    return {cache.rows, ledger, 0}; // rows that were read may be wrong
  }
  return result;
}

/// The positions of one sequence in [B, M] that the archive contains, at most `count`.
std::vector<int> positions_of(
    const mx::array& positions, int batch, int count, const ArchiveReader& archive) {
  std::vector<int> result;
  const int32_t* row = positions.data<int32_t>() + int64_t(batch) * positions.shape(1);
  for (int m = 0; m < positions.shape(1) && int(result.size()) < count; ++m) {
    const bool is_new = std::find(row, row + m, row[m]) == row + m;
    if (row[m] >= archive.first() && row[m] < archive.end() && is_new) {
      result.push_back(row[m]);
    }
  }
  return result;
}

/// A head's own choice, followed by the further positions to hold, at most `most` together.
/// If there are further positions, keeps only the first `own_rows` of the own ones.
std::vector<int> joined(
    std::vector<int> own, const std::vector<int>& also, int own_rows, int most) {
  if (!also.empty() && int(own.size()) > own_rows) {
    own.resize(own_rows);
  }
  for (int position : also) {
    if (int(own.size()) < most &&
        std::find(own.begin(), own.end(), position) == own.end()) {
      own.push_back(position);
    }
  }
  return own;
}

} // namespace recalling

Recalled recall(
    const Asking& tokens,
    const ArchivedCache& cache,
    const std::optional<mx::array>& also,
    const CacheConfig& config,
    bool in_operations,
    mx::StreamOrDevice s) {
  using namespace recalling;
  Archive& archive = cache.archive;
  const int batch = tokens.keys.shape(0), kv_heads = tokens.keys.shape(1);
  const int asks = tokens.keys.shape(2);
  const auto besides =
      also ? mx::contiguous(*also, false, s) : mx::zeros({batch, 0}, mx::int32);
  Asking asking = tokens;
  asking.queries = as_stored(tokens.queries, config.format, s);
  asking.keys = as_stored(tokens.keys, config.format, s);
  std::vector<mx::array> others{asking.queries, asking.keys, besides};
  for (const auto& a : {asking.mask.values, asking.sinks}) {
    if (a) {
      others.push_back(*a);
    }
  }
  const ArchivedCache ready = evaluated(cache, others, s);
  ArchiveReader reader(archive, archive.blocks(s));
  const int archived = reader.end() - reader.first();
  const int wanted = archive.failure() ? 0 : recall_rows(config, archive.recall());
  const int most = most_recall_rows(config);

  std::optional<mx::array> computed;
  if ((in_operations || on_gpu(mx::to_stream(s))) && wanted > 0) {
    computed = mx::contiguous(relevance_in_operations(asking, archive, s), false, s);
    mx::eval(*computed);
  }
  RelevanceOfHeads heads(asking, reader);
  std::vector<float> relevance(archived);
  // If the layers also chose positions together, each head chooses only half as many rows.
  // Each position then brings half as many neighbors, so that more places fit.
  Recall own_settings = archive.recall();
  if (also) {
    own_settings.spread /= 2;
    own_settings.before /= 2;
  }
  auto choose = [&](RowSwap&, int b, int h) -> std::vector<int> {
    if (wanted < 1) {
      return {};
    }
    if (computed) {
      const int64_t head = int64_t(b) * kv_heads + h;
      std::copy_n(computed->data<float>() + head * archived, archived, relevance.begin());
    } else {
      heads.compute(b, h, relevance.data());
    }
    auto own = choose_positions(
        relevance, reader.first(), cache.offset + asks, wanted, config, own_settings);
    const int own_rows = std::max(1, wanted / 2);
    return joined(std::move(own), positions_of(besides, b, most, reader), own_rows, most);
  };
  return swapped(cache, ready, {config, cache.offset, asks}, reader, choose);
}

Recalled bring_back(
    const mx::array& positions,
    const ArchivedCache& cache,
    const CacheConfig& config,
    mx::StreamOrDevice s) {
  Archive& archive = cache.archive;
  const auto wanted = mx::contiguous(positions, false, s);
  const ArchivedCache ready = recalling::evaluated(cache, {wanted}, s);
  ArchiveReader reader(archive, archive.blocks(s));
  const int rows = recall_rows(config, archive.recall());
  return recalling::swapped(
      cache, ready, {config, cache.offset, 0}, reader, [&](RowSwap& swap, int b, int h) {
        const auto chosen = recalling::positions_of(wanted, b, rows, reader);
        return swap.with_finite_keys(chosen, b * archive.kv_heads() + h);
      });
}

mx::array chosen_positions(
    const mx::array& asked_for,
    int first,
    int seen,
    int rows,
    const Policy& policy,
    const Recall& recall,
    mx::StreamOrDevice s) {
  auto ready = mx::contiguous(asked_for, false, s);
  mx::eval(ready);
  const int batch = ready.shape(0), count = ready.shape(1);
  auto chosen = host_array({batch, rows}, mx::int32);
  std::fill_n(chosen.data<int32_t>(), chosen.size(), -1);
  for (int b = 0; b < batch; ++b) {
    const float* row = ready.data<float>() + int64_t(b) * count;
    const auto best =
        choose_positions({row, row + count}, first, seen, rows, policy, recall);
    std::copy(best.begin(), best.end(), chosen.data<int32_t>() + int64_t(b) * rows);
  }
  return chosen;
}

} // namespace h2o
