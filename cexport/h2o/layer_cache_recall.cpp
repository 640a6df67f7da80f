#include <algorithm>
#include <chrono>

#include "layer_cache.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"
#include "recall.h"

namespace h2o {

/// Makes the archive, if recall is on and may hold at least one row.
void LayerCache::start_archive(int key_dim, int value_dim, mx::StreamOrDevice s) {
  if (!recall_ || recall_ended_ || recall_rows(config_, *recall_) < 1) {
    return;
  }
  try {
    make_archive(key_dim, value_dim);
    ledger_->held = mx::zeros(ledger_->scores.shape(), mx::bool_, s);
  } catch (const CacheError& error) {
    if (must_recall) {
      throw;
    }
    end_recall({error.code});
  } catch (const ArchiveError& error) {
    if (must_recall) {
      throw;
    }
    end_recall(error.failure);
  }
}

void LayerCache::make_archive(int key_dim, int value_dim) {
  constexpr int own_dtype_bits = 16;
  const bool is_whole = key_dim % archive_group == 0 && value_dim % archive_group == 0;
  if (recall_->archive_bits != own_dtype_bits && !is_whole) {
    throw CacheError(cache_codes::archive_group, {});
  }
  std::shared_ptr<SegmentFolder> folder;
  if (!recall_->store.empty()) {
    folder = std::make_shared<SegmentFolder>(recall_->store, std::nullopt);
  }
  archive_.emplace(*recall_, std::move(folder));
}

/// Returns how many of the last new tokens ask before their attention: none before the
/// first eviction, and none between recalls. Counts the single-token steps.
int LayerCache::asking(int tokens) {
  if (!archive_) {
    return 0;
  }
  if (tokens == 1) {
    ++since_;
    const bool is_due = recall_->every > 0 && since_ >= recall_->every;
    return is_due && offset_ > config_.max_size ? 1 : 0;
  }
  const int asking = std::min(recall_->ask, tokens);
  return offset_ + tokens - asking > config_.max_size ? asking : 0;
}

ArchivedCache LayerCache::archived() {
  return {*rows_, *ledger_, *archive_, offset_};
}

/// Runs `work` and adds its time to `recall_seconds`. Evaluates its inputs and the rows
/// first, so that their time is not included.
template <class Work>
auto LayerCache::timed(std::vector<mx::array> arguments, Work work) {
  arguments.insert(arguments.end(), {rows_->pool, ledger_->victim});
  mx::eval(arguments);
  const auto begun = std::chrono::steady_clock::now();
  auto result = work();
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begun;
  recall_seconds_ += time.count();
  return result;
}

/// Computes the attention of the asking tokens to rows and archive, and votes for
/// positions. None if the archive cannot be read, which ends recall.
std::optional<mx::array> LayerCache::read(
    const Asking& asking, const mx::array& values, mx::StreamOrDevice s) {
  const auto reading = timed({asking.queries, asking.keys, values}, [&] {
    return read_everything(asking, values, archived(), config_, s);
  });
  if (!reading) {
    check_archive();
    return std::nullopt;
  }
  ballot_ = choice_->vote(
      layer_, offset_ + asking.keys.shape(2), reading->strongest, archive_->first(),
      config_, *recall_, s);
  return reading->out;
}

/// Brings back the rows that these queries ask for; each KV head chooses its own.
void LayerCache::recall_for(const Asking& asking, mx::StreamOrDevice s) {
  take(timed({asking.queries, asking.keys}, [&] {
    return h2o::recall(asking, archived(), chosen_, config_, in_operations_, s);
  }));
}

/// Brings back the rows that the layers chose together, if they chose any. `write` and
/// `finish` call this first.
void LayerCache::bring_back(mx::StreamOrDevice s) {
  const auto ballot = std::exchange(ballot_, nullptr);
  if (!ballot || !archive_) {
    return;
  }
  take(timed({}, [&] {
    chosen_ = ballot->chosen(s);
    return h2o::bring_back(*chosen_, archived(), config_, s);
  }));
}

/// Replaces the rows and the ledger.
void LayerCache::take(const Recalled& recalled) {
  rows_ = recalled.rows;
  ledger_ = recalled.ledger;
  is_shared_ = is_shared_ && recalled.count == 0; // new rows are not shared
  since_ = 0;
  recalled_ += recalled.count;
  check_archive();
}

/// Ends recall if the archive can no longer be read or written.
void LayerCache::check_archive() {
  if (const auto failure = archive_->failure()) {
    end_recall(*failure);
  }
}

/// Drops the archive and releases held rows, with a notice that says why.
void LayerCache::end_recall(CacheNotice notice) {
  archive_.reset();
  recall_ended_ = true;
  ballot_.reset();
  chosen_.reset();
  since_ = 0;
  recalled_ = 0;
  recall_seconds_ = 0;
  if (ledger_) {
    ledger_->held.reset();
  }
  notices_.push_back(std::move(notice));
}

} // namespace h2o
