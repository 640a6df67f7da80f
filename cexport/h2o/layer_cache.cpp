#include "layer_cache.h"

#include <algorithm>

#include "checks.h"
#include "fallback.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"
#include "row_layout.h"

namespace h2o {

namespace layer_caches {

/// The first `count` rows of a buffer. If `count` is 0, returns one row of zeros, because
/// MLX 0.31 cannot save an empty array.
mx::array used_rows(const mx::array& rows, int count, mx::StreamOrDevice s) {
  if (count == 0) {
    return mx::zeros({rows.shape(0), rows.shape(1), 1, rows.shape(3)}, rows.dtype(), s);
  }
  return sliced(rows, 2, 0, count, s);
}

size_t bytes_of(const std::vector<mx::array>& arrays) {
  size_t bytes = 0;
  for (const auto& a : arrays) {
    bytes += a.nbytes();
  }
  return bytes;
}

Heads heads_of(const mx::array& keys, const mx::array& values) {
  return {keys.shape(0), keys.shape(1), keys.shape(3), values.shape(3)};
}

} // namespace layer_caches

LayerCache::LayerCache(CacheConfig config, std::optional<Recall> recall, bool in_operations)
    : config_(std::move(config)),
      recall_(std::move(recall)),
      in_operations_(in_operations) {
  if (!config_.evicts() && config_.format.has_ring()) {
    refuse("LayerCache", "a cache that keeps every token cannot have a ring.");
  }
}

LayerCache LayerCache::copy() {
  is_shared_ = true;
  if (archive_) {
    archive_->share();
  }
  return *this;
}

void LayerCache::write(
    const mx::array& keys, const mx::array& values, mx::StreamOrDevice s) {
  check_tokens_fit(keys, values);
  if (unattended() > 0) {
    if (expects_queries && config_.evicts()) {
      notices_.push_back({notice_codes::not_routed});
    }
    lend();
    settle(s);
  }
  is_replaced_ = false;
  if (!rows_) {
    start(keys, values, s);
    return;
  }
  put(keys, values, s);
}

/// Writes the first tokens. If they are refused, the cache stays empty.
void LayerCache::start(
    const mx::array& keys, const mx::array& values, mx::StreamOrDevice s) {
  const mx::Dtype dtype = config_.format.dtype;
  try {
    if (config_.format.has_ring() || !config_.format.is_dense()) {
      config_.format.dtype = keys.dtype();
    }
    set_heads(layer_caches::heads_of(keys, values), s);
    if (config_.evicts()) {
      ledger_ = make_ledger(heads_.batch, heads_.kv_heads, config_, s);
      start_archive();
    }
    put(keys, values, s);
  } catch (...) {
    config_.format.dtype = dtype;
    ledger_.reset();
    archive_.reset();
    throw;
  }
}

void LayerCache::set_heads(const Heads& heads, mx::StreamOrDevice s) {
  if (!config_.evicts()) {
    no_victim_ = mx::full({heads.batch, heads.kv_heads}, -1, mx::int32, s);
  }
  heads_ = heads;
}

std::optional<mx::array> LayerCache::attend(
    const std::optional<mx::array>& queries,
    float scale,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    mx::StreamOrDevice s) {
  if (unattended_ == 0) {
    throw CacheError({cache_codes::attend_before_write, {}});
  }
  const CacheStep step{config_, offset_ - unattended_, unattended_};
  if (queries) {
    check_queries(*queries, step.tokens, step.rows(), mask, sinks);
  }
  if (!config_.evicts()) {
    unattended_ = 0;
    if (!queries) {
      return std::nullopt;
    }
    const auto compute = in_operations_ ? fallback::full_attention : full_attention;
    return compute(
        *queries, rows_->pool, length_, heads_.key_dim, config_.format, scale, mask, sinks,
        s);
  }
  std::optional<Elsewhere> elsewhere;
  if (queries && archive_) {
    elsewhere = read_archive(*queries, scale, s);
  }
  const AttendArguments arguments{queries,     *rows_,      *ledger_, heads_.key_dim,
                                  step.tokens, step.offset, scale,    mask,
                                  sinks,       elsewhere};
  auto attended = in_operations_ ? fallback::cache_attend(arguments, config_, s)
                                 : cache_attend(arguments, config_, s);
  if (step.rearranges()) {
    is_replaced_ = true; // no other code has these rows
    is_shared_ = false;
  }
  rows_ = std::move(attended.rows);
  ledger_ = std::move(attended.ledger);
  length_ = std::min(length_, config_.max_size);
  unattended_ = 0;
  return attended.out;
}

void LayerCache::settle(mx::StreamOrDevice s) {
  if (unattended_ > 0) {
    if (archive_) {
      end_recall({notice_codes::recall_not_asked});
    }
    attend(std::nullopt, 1.0f, {}, std::nullopt, s);
  }
}

/// Throws std::invalid_argument if new tokens have another shape than earlier ones.
void LayerCache::check_tokens_fit(const mx::array& keys, const mx::array& values) const {
  constexpr const char* function = "write";
  check_tokens_of(function, keys, values);
  check_tokens(function, offset(), keys.shape(2));
  if (rows_ && heads_ != layer_caches::heads_of(keys, values)) {
    refuse(
        function, "keys has shape ", keys.shape(), " and values ", values.shape(),
        "; the tokens before have B = ", heads_.batch, ", Hkv = ", heads_.kv_heads,
        ", Dk = ", heads_.key_dim, " and Dv = ", heads_.value_dim, ".");
  }
}

/// Throws std::invalid_argument if attention of `tokens` queries over `rows` rows cannot be
/// computed.
void LayerCache::check_queries(
    const mx::array& queries,
    int tokens,
    int rows,
    const Mask& mask,
    const std::optional<mx::array>& sinks) const {
  check_new_queries("attend", queries, tokens);
  check_attention(
      "attend", queries, heads_.batch, heads_.kv_heads, rows, heads_.key_dim, mask, sinks);
}

/// Writes tokens to the rows and to the archive.
void LayerCache::put(const mx::array& keys, const mx::array& values, mx::StreamOrDevice s) {
  const auto& victim = ledger_ ? ledger_->victim : *no_victim_;
  auto written =
      cache_write({rows_, keys, values, victim, offset_, is_shared_}, config_, s);
  if (archive_) {
    archive_->append(keys, values, config_.format, ledger_->victim, s);
    if (archive_->first() > 0) {
      notices_.push_back({notice_codes::recall_limit});
    }
    check_archive();
  }
  rows_ = std::move(written);
  is_shared_ = false;
  unattended_ = keys.shape(2);
  length_ = length_after(unattended_);
  offset_ += unattended_;
}

/// Rows in use after `tokens` more tokens are written.
int LayerCache::length_after(int tokens) const {
  return tokens > 1 || length_ < config_.max_size ? length_ + tokens : length_;
}

std::pair<mx::array, mx::array> LayerCache::fetch(mx::StreamOrDevice s) const {
  const CacheStep step{config_, offset_ - unattended_, unattended_};
  std::vector<mx::array> keys, values;
  auto add = [&](const mx::array& buffer, int count, const RowFormat& format) {
    const auto vectors = unpacked_rows(
        sliced(buffer, 2, 0, count, s), format, heads_.key_dim, format.dtype, s);
    keys.push_back(as_given(vectors.first, config_.format, s));
    values.push_back(as_given(vectors.second, config_.format, s));
  };
  if (!rows_->ring || step.pool_used() > 0) {
    add(rows_->pool, step.pool_used(), config_.format);
  }
  if (step.ring_used() > 0) {
    add(*rows_->ring, step.ring_used(), config_.format.ring());
  }
  return {mx::concatenate(keys, 2, s), mx::concatenate(values, 2, s)};
}

std::pair<mx::array, mx::array> LayerCache::views(mx::StreamOrDevice s) {
  if (!rows_) {
    refuse("views", "the cache is empty.");
  }
  lend();
  return fetch(s);
}

bool LayerCache::is_trimmable() const {
  const bool is_whole = !archive_ || archive_->first() == 0;
  return is_whole && !config_.format.has_ring() && offset() <= config_.max_size;
}

int LayerCache::trim(int n, mx::StreamOrDevice s) {
  if (!is_trimmable() || !rows_) {
    return 0;
  }
  settle(s);
  n = std::clamp(n, 0, length_);
  if (n == 0) {
    return 0;
  }
  if (ledger_) {
    ledger_ = trim_ledger(*ledger_, length_ - n, s);
  } else {
    is_shared_ = true; // queued attention may still read the removed rows
  }
  if (archive_) {
    archive_->trim(n, s);
  }
  offset_ -= n;
  length_ -= n;
  return n;
}

void LayerCache::share() {
  if (!is_replaced_) {
    lend();
  }
}

/// Makes the next write copy the rows, unless it only adds rows behind them.
void LayerCache::lend() {
  is_shared_ = is_shared_ || config_.evicts();
}

void LayerCache::move_archive(const std::string& folder, mx::StreamOrDevice s) {
  if (!archive_) {
    return;
  }
  Recall recall = *recall_;
  recall.store = folder;
  auto moved = Archive::restored(
      archive_->arrays(s), recall, archive_->format(), archive_->heads(), archive_->first(),
      archive_->length(), std::make_shared<SegmentFolder>(folder, std::nullopt), s);
  mx::eval(moved.arrays(s));
  archive_ = std::move(moved);
  recall_ = std::move(recall);
}

std::vector<mx::array> LayerCache::arrays(mx::StreamOrDevice s) {
  if (is_empty()) {
    return {};
  }
  lend();
  // Saves no unused rows, so that a file contains no leftover memory.
  const CacheStep step{config_, offset_ - unattended_, unattended_};
  const Layouts layouts = layouts_of("arrays", config_.format, *rows_, heads_.key_dim);
  std::vector<mx::array> arrays;
  auto add = [&](const mx::array& rows, const RowLayout& layout, int count) {
    const auto used = layer_caches::used_rows(rows, count, s);
    const int end = int(layout.key.bytes() / int64_t(used.itemsize()));
    arrays.push_back(sliced(used, 3, 0, end, s));
    arrays.push_back(sliced(used, 3, end, used.shape(3), s));
  };
  add(rows_->pool, layouts.pool, step.pool_used());
  if (rows_->ring) {
    add(*rows_->ring, *layouts.ring, step.ring_used());
  }
  if (ledger_) {
    const auto ledger = arrays_of(*ledger_);
    arrays.insert(arrays.end(), ledger.begin(), ledger.end());
  }
  if (archive_) {
    const auto archived = archive_->arrays(s);
    arrays.insert(arrays.end(), archived.begin(), archived.end());
  }
  return arrays;
}

void LayerCache::set_ledger(Ledger ledger) {
  constexpr const char* function = "set_ledger";
  if (!ledger_) {
    refuse(function, "the cache has no ledger.");
  }
  check_ledger(function, ledger, heads_.batch, heads_.kv_heads, config_.max_size);
  ledger_ = std::move(ledger);
}

size_t LayerCache::row_bytes() const {
  return rows_ ? layer_caches::bytes_of(arrays_of(*rows_)) : 0;
}

size_t LayerCache::ledger_bytes() const {
  return rows_ && ledger_ ? layer_caches::bytes_of(arrays_of(*ledger_)) : 0;
}

size_t LayerCache::nbytes() const {
  const size_t archived = archive_ ? archive_->nbytes() + archive_->sketch_bytes() : 0;
  return row_bytes() + ledger_bytes() + archived;
}

} // namespace h2o
