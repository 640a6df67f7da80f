#include "recall.h"
#include "allocated.h"

#include <cstring>

#include "checks.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"
#include "placement.h"
#include "recall_swap.h"
#include "relevance.h"
#include "rotation.h"

namespace h2o {

namespace recalling {

constexpr const char* function = "recall";

/// The layouts of the rows; throws for what does not fit.
Layouts checked(const RecallArguments& given, const CacheConfig& config) {
  validate(config);
  const auto& [queries, keys, rows, ledger, archive, offset, scale, mask, sinks] = given;
  check_heads(function, "keys", keys, "[B, Hkv, a, Dk]");
  check_tokens(function, offset, keys.shape(2), 1);
  check_rows_in_use(function, rows, {config, offset, 0});
  const int batch = rows.pool.shape(0), heads = rows.pool.shape(1);
  const int key_dim = keys.shape(3), asks = keys.shape(2);
  check_ledger(function, ledger, batch, heads, config.max_size, key_dim);
  auto layouts = layouts_of(function, config.format, rows, key_dim);
  check_new_queries(function, queries, asks);
  check_attention(function, queries, batch, heads, asks, key_dim, mask, sinks);
  if (keys.shape(0) != batch || keys.shape(1) != heads) {
    refuse(
        function, "keys has shape ", keys.shape(), "; the rows have batch size ", batch,
        " and ", heads, " KV heads.");
  }
  if (archive.length() != offset || archive.length() == archive.first()) {
    refuse(
        function, "the archive has positions from ", archive.first(), " to ",
        archive.length(), "; offset is ", offset, ".");
  }
  if (archive.batch() != batch || archive.kv_heads() != heads ||
      archive.key_dim() != key_dim || layouts.pool.value.dim != archive.value_dim()) {
    refuse(
        function, "the archive has batch size ", archive.batch(), ", ", archive.kv_heads(),
        " KV heads of ", archive.key_dim(), " and ", archive.value_dim(),
        "; the rows have others.");
  }
  return layouts;
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

/// Everything evaluated, and the ledger's arrays row by row.
RecallArguments evaluated(const RecallArguments& given, mx::StreamOrDevice s) {
  RecallArguments ready = given;
  auto settle = [&](mx::array& a) {
    a = mx::contiguous(a, false, s);
  };
  auto& ledger = ready.ledger;
  for (auto* a : {&ledger.scores, &ledger.positions, &ledger.novelty, &ledger.victim}) {
    settle(*a);
  }
  if (!ledger.held) {
    ledger.held = mx::zeros(ledger.scores.shape(), mx::bool_, s);
  }
  std::vector<mx::array> all{ready.queries, ready.keys,       ready.rows.pool,
                             ledger.scores, ledger.positions, ledger.novelty,
                             ledger.victim, ledger.key_sum};
  for (const auto& a : {ready.rows.ring, ready.mask.values, ready.sinks}) {
    if (a) {
      all.push_back(*a);
    }
  }
  for (const auto& block : ready.archive.blocks(s)) {
    all.insert(all.end(), {block.rows, block.novelty});
  }
  mx::eval(all);
  return ready;
}

Recalled run(
    const RecallArguments& given,
    const CacheConfig& config,
    mx::StreamOrDevice s,
    bool in_operations) {
  Layouts layouts = checked(given, config);
  RecallArguments stored = given;
  stored.queries = as_stored(given.queries, config.format, s);
  stored.keys = as_stored(given.keys, config.format, s);
  const RecallArguments ready = evaluated(stored, s);
  Archive& archive = ready.archive;
  const Ledger& ledger = ready.ledger;
  ArchiveReader reader(archive, archive.blocks(s));
  const Asking asking{ready.queries, ready.keys, ready.scale, ready.mask, ready.sinks};
  const int asks = ready.keys.shape(2), kv_heads = ready.keys.shape(1);
  const int archived = reader.end() - reader.first();

  Ledger next = ledger;
  next.scores = copy_of(ledger.scores);
  next.positions = copy_of(ledger.positions);
  next.novelty = copy_of(ledger.novelty);
  next.held = host_array(ledger.scores.shape(), mx::bool_);
  std::memset(next.held->data<char>(), 0, next.held->nbytes());
  Recalled result{given.rows, next, 0};
  const int wanted = recall_rows(config, archive.recall());
  if (wanted < 1 || archive.failure()) {
    return result;
  }

  std::optional<mx::array> computed;
  if (in_operations) {
    computed = mx::contiguous(relevance_in_operations(asking, archive, s), false, s);
    mx::eval(*computed);
  }
  RelevanceOfHeads heads(asking, reader);
  std::vector<float> relevance(archived);
  RowSwap swap({config, ready.offset, asks}, archive, reader, std::move(layouts));
  for (int b = 0; b < ready.keys.shape(0); ++b) {
    for (int h = 0; h < kv_heads; ++h) {
      const int head = b * kv_heads + h;
      if (computed) {
        std::copy_n(
            computed->data<float>() + int64_t(head) * archived, archived,
            relevance.begin());
      } else {
        heads.compute(b, h, relevance.data());
      }
      auto chosen = swap.choose(relevance, wanted);
      const int64_t at = int64_t(head) * config.max_size;
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
    }
  }
  if (archive.failure()) {
    return {given.rows, ledger, 0}; // what was read cannot be trusted
  }
  return result;
}

} // namespace recalling

Recalled recall(
    const RecallArguments& arguments, const CacheConfig& config, mx::StreamOrDevice s) {
  return recalling::run(arguments, config, s, on_gpu(mx::to_stream(s)));
}

namespace fallback {

Recalled recall(
    const RecallArguments& arguments, const CacheConfig& config, mx::StreamOrDevice s) {
  return recalling::run(arguments, config, s, true);
}

} // namespace fallback
} // namespace h2o
