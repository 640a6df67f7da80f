#include <algorithm>

#include "layer_cache.h"
#include "mlx/ops.h"

namespace h2o {

/// Makes the archive, if recall is on.
void LayerCache::start_archive() {
  if (!recall_ || recall_ended_) {
    return;
  }
  try {
    constexpr int own_dtype_bits = 16;
    const bool is_whole =
        heads_.key_dim % archive_group == 0 && heads_.value_dim % archive_group == 0;
    if (recall_->archive_bits != own_dtype_bits && !is_whole) {
      throw CacheError({cache_codes::archive_group, {}});
    }
    std::shared_ptr<SegmentFolder> folder;
    if (!recall_->store.empty()) {
      folder = std::make_shared<SegmentFolder>(recall_->store, std::nullopt);
    }
    archive_.emplace(*recall_, std::move(folder));
  } catch (const CacheError& error) {
    if (must_recall) {
      throw;
    }
    end_recall({error.problem.code});
  } catch (const ArchiveError& error) {
    if (must_recall) {
      throw;
    }
    end_recall(error.failure);
  }
}

/// What the queries of the tokens just written read from the archive: none before the first
/// eviction.
std::optional<Elsewhere> LayerCache::read_archive(
    const mx::array& queries, float scale, mx::StreamOrDevice s) {
  const int tokens = unattended_, before = offset_ - tokens;
  const bool is_single = tokens == 1, are_generated = tokens <= draft_tokens;
  const int evicted = before - config_.max_size + (is_single ? 1 : 0);
  if (evicted <= 0 || before <= archive_->first() ||
      (are_generated && recall_->reach == 0)) {
    return std::nullopt;
  }
  auto kept = ledger_->positions;
  if (is_single) { // the token has overwritten the victim
    auto entries = mx::arange(config_.max_size, s);
    auto victim = mx::expand_dims(ledger_->victim, 2, s);
    kept = mx::where(mx::equal(entries, victim, s), mx::array(-1), kept, s);
  }
  const int asking = are_generated ? tokens : std::min(tokens, recall_->ask);
  const Reading reading{
      as_stored(sliced(queries, 2, tokens - asking, tokens, s), config_.format, s), scale,
      kept, before, in_operations_};
  auto elsewhere = are_generated ? read_matching(reading, recall_->reach, *archive_, s)
                                 : read_everything(reading, *archive_, s);
  check_archive();
  if (elsewhere) {
    const int64_t read =
        are_generated ? int64_t(std::min(recall_->reach, evicted)) * tokens : evicted;
    archive_reads_ += read * heads_.batch * heads_.kv_heads;
  }
  return elsewhere;
}

/// Ends recall if the archive can no longer be read or written.
void LayerCache::check_archive() {
  if (archive_) {
    if (const auto failure = archive_->failure()) {
      end_recall(*failure);
    }
  }
}

/// Drops the archive, with a notice that says why.
void LayerCache::end_recall(CacheNotice notice) {
  archive_.reset();
  recall_ended_ = true;
  archive_reads_ = 0;
  notices_.push_back(std::move(notice));
}

} // namespace h2o
