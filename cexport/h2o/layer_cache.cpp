#include "layer_cache.h"

#include <algorithm>

#include "checks.h"
#include "fallback.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"
#include "row_layout.h"

namespace h2o {

namespace layer_caches {

std::string text_of(const std::string& code, const CacheError::Values& values) {
  std::string text = code;
  for (const auto& [name, value] : values) {
    text += (&name == &values.begin()->first ? ": " : ", ") + name + " " + value;
  }
  return text;
}

/// The masks of a chunk's two parts, and the mask of its asking tokens among themselves.
struct MaskParts {
  Mask before, own, asking;
};

/// Makes the masks of a chunk of `tokens` whose last `asking` tokens ask. Asking tokens
/// see all older rows, because rows have no common order after an eviction. A part of one
/// token sees all rows, because the cache is full then.
///
/// `mask` covers all tokens over the `rows` in use before them. `kept` is the number of
/// rows in use before the asking tokens.
MaskParts parts_of(
    const Mask& mask, int tokens, int asking, int rows, int kept, mx::StreamOrDevice s) {
  const int before = tokens - asking;
  if (!mask.values) {
    return {Mask{before > 1}, Mask{asking > 1}, Mask{asking > 1}};
  }
  const auto& dims = mask.values->shape();
  mx::Shape shape(dims.begin(), dims.end() - std::min<int>(2, dims.size()));
  shape.insert(shape.end(), {tokens, rows + tokens});
  const auto whole = mx::broadcast_to(*mask.values, shape, s);
  const int lines = int(shape.size()) - 2, columns = lines + 1;
  auto cut = [&](int first_line, int last_line, int first, int last) {
    return sliced(sliced(whole, lines, first_line, last_line, s), columns, first, last, s);
  };
  const auto own = cut(before, tokens, rows + before, rows + tokens);
  auto older = own.shape();
  older.back() = kept;
  const auto seen = own.dtype() == mx::bool_ ? mx::ones(older, mx::bool_, s)
                                             : mx::zeros(older, own.dtype(), s);
  MaskParts parts;
  if (before > 1) {
    parts.before.values = cut(0, before, 0, rows + before);
  }
  if (asking > 1) {
    parts.own.values = own;
    parts.asking.values = mx::concatenate({seen, own}, columns, s);
  }
  return parts;
}

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

} // namespace layer_caches

CacheError::CacheError(std::string code, Values values)
    : std::runtime_error(layer_caches::text_of(code, values)),
      code(std::move(code)),
      values(std::move(values)) {
}

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
  return *this;
}

void LayerCache::join(std::shared_ptr<PromptChoice> choice, int layer) {
  choice_ = std::move(choice);
  layer_ = layer;
}

void LayerCache::write(
    const mx::array& keys, const mx::array& values, bool copy, mx::StreamOrDevice s) {
  check_tokens_fit(keys, values);
  if (unattended() > 0) {
    if (expects_queries && config_.evicts()) {
      notices_.push_back({notice_codes::not_routed});
    }
    lend();
    settle(s);
  }
  if (copy && !is_replaced_) {
    lend();
  }
  if (!rows_) {
    start(keys, values, s);
    return;
  }
  bring_back(s);
  put_or_defer(keys, values, s);
}

/// Writes the first tokens. If they are refused, the cache stays empty.
void LayerCache::start(
    const mx::array& keys, const mx::array& values, mx::StreamOrDevice s) {
  const mx::Dtype dtype = config_.format.dtype;
  try {
    if (config_.format.has_ring() || !config_.format.is_dense()) {
      config_.format.dtype = keys.dtype();
    }
    // Refuses head dims now, because `attend` may be the first to write rows.
    make_layouts("write", config_.format, keys.shape(3), values.shape(3), keys.dtype());
    set_heads({keys.shape(0), keys.shape(1), keys.shape(3)}, s);
    if (config_.evicts()) {
      ledger_ = make_ledger(heads_[0], heads_[1], heads_[2], config_, s);
      start_archive(keys.shape(3), values.shape(3), s);
    }
    put_or_defer(keys, values, s);
  } catch (...) {
    config_.format.dtype = dtype;
    ledger_.reset();
    archive_.reset();
    throw;
  }
}

void LayerCache::set_heads(mx::Shape heads, mx::StreamOrDevice s) {
  if (!config_.evicts()) {
    no_victim_ = mx::full({heads[0], heads[1]}, -1, mx::int32, s);
  }
  heads_ = std::move(heads);
}

/// Writes tokens, unless the last of them ask, so that `attend` writes them.
void LayerCache::put_or_defer(
    const mx::array& keys, const mx::array& values, mx::StreamOrDevice s) {
  const int asking = this->asking(keys.shape(2));
  is_replaced_ = false;
  if (asking > 0) {
    deferred_ = {keys, values, asking};
  } else {
    put(keys, values, s);
  }
}

std::optional<mx::array> LayerCache::attend(
    const std::optional<mx::array>& queries,
    float scale,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    mx::StreamOrDevice s) {
  if (deferred_ && queries) {
    return attend_in_parts(*queries, {scale, sinks}, mask, s);
  }
  if (unattended_ == 0) {
    throw CacheError(cache_codes::attend_before_write, {});
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
        *queries, rows_->pool, length_, heads_[2], config_.format, scale, mask, sinks, s);
  }
  const AttendArguments arguments{queries,     *rows_, *ledger_, step.tokens,
                                  step.offset, scale,  mask,     sinks};
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
  finish(s);
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
  check_tokens(function, offset(), keys.shape(2), 1);
  if (!rows_) {
    return;
  }
  if (heads_ != mx::Shape{keys.shape(0), keys.shape(1), keys.shape(3)} ||
      values.shape(3) != value_dim()) {
    refuse(
        function, "keys has shape ", keys.shape(), " and values ", values.shape(),
        "; the tokens before have [B, Hkv, Dk] = ", heads_, " and Dv = ", value_dim(), ".");
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
  check_attention("attend", queries, heads_[0], heads_[1], rows, heads_[2], mask, sinks);
}

/// Writes tokens to the rows and to the archive.
void LayerCache::put(const mx::array& keys, const mx::array& values, mx::StreamOrDevice s) {
  const auto& victim = ledger_ ? ledger_->victim : *no_victim_;
  auto written =
      cache_write({rows_, keys, values, victim, offset_, is_shared_}, config_, s);
  if (archive_) {
    archive_->append(keys, values, ledger_->key_sum, config_, s);
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
  if (deferred_ && !rows_) {
    return {deferred_->keys, deferred_->values};
  }
  const CacheStep step{config_, offset_ - unattended_, unattended_};
  std::vector<mx::array> keys, values;
  auto add = [&](const mx::array& buffer, int count, const RowFormat& format) {
    const auto vectors =
        unpacked_rows(sliced(buffer, 2, 0, count, s), format, heads_[2], format.dtype, s);
    keys.push_back(as_given(vectors.first, config_.format, s));
    values.push_back(as_given(vectors.second, config_.format, s));
  };
  if (!rows_->ring || step.pool_used() > 0) {
    add(rows_->pool, step.pool_used(), config_.format);
  }
  if (step.ring_used() > 0) {
    add(*rows_->ring, step.ring_used(), config_.format.ring());
  }
  if (deferred_) {
    keys.push_back(mx::astype(deferred_->keys, keys[0].dtype(), s));
    values.push_back(mx::astype(deferred_->values, values[0].dtype(), s));
  }
  return {mx::concatenate(keys, 2, s), mx::concatenate(values, 2, s)};
}

std::pair<mx::array, mx::array> LayerCache::views(mx::StreamOrDevice s) {
  finish(s);
  if (!rows_) {
    refuse("views", "the cache is empty.");
  }
  lend();
  return fetch(s);
}

void LayerCache::finish(mx::StreamOrDevice s) {
  bring_back(s);
  if (const auto tokens = std::exchange(deferred_, std::nullopt)) {
    end_recall({notice_codes::recall_not_asked});
    put(tokens->keys, tokens->values, s);
  }
}

/// Writes the first tokens and computes their attention. Then lets the last tokens ask,
/// writes them and computes their attention.
mx::array LayerCache::attend_in_parts(
    const mx::array& queries,
    const Attention& attention,
    const Mask& mask,
    mx::StreamOrDevice s) {
  const int tokens = deferred_->keys.shape(2), size = config_.max_size;
  const int rows = std::min(length_, size);
  check_queries(queries, tokens, rows + tokens, mask, attention.sinks);
  const auto parts = layer_caches::parts_of(mask, tokens, deferred_->asking, rows, size, s);
  const Deferred deferred = *std::exchange(deferred_, std::nullopt);
  const int before = tokens - deferred.asking;
  std::vector<mx::array> outs;
  auto part = [&](const mx::array& a, int begin, int end) {
    return sliced(a, 2, begin, end, s);
  };
  auto step = [&](int begin, int end, const Mask& seen) {
    put(part(deferred.keys, begin, end), part(deferred.values, begin, end), s);
    const auto part_queries = part(queries, begin, end);
    outs.push_back(attend(part_queries, attention.scale, seen, attention.sinks, s).value());
  };
  if (before > 0) {
    step(0, before, parts.before);
  }
  std::optional<mx::array> read_out;
  if (archive_ && archive_->length() > archive_->first()) {
    const Asking asking{
        part(queries, before, tokens), part(deferred.keys, before, tokens), attention.scale,
        parts.own, attention.sinks};
    if (choice_ && tokens > 1) {
      read_out = read(asking, part(deferred.values, before, tokens), s);
    } else {
      recall_for(asking, s);
    }
  }
  step(before, tokens, parts.asking);
  if (read_out) {
    outs.back() = *read_out;
  }
  return mx::concatenate(outs, 2, s);
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
    ledger_ = trim_ledger(*rows_, *ledger_, length_ - n, config_, s);
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
  finish(s);
  if (!archive_) {
    return;
  }
  Recall recall = *recall_;
  recall.store = folder;
  auto moved = Archive::restored(
      archive_->arrays(s), recall, archive_->format(), ledger_->key_sum.shape(2),
      archive_->first(), archive_->length(),
      std::make_shared<SegmentFolder>(folder, std::nullopt));
  mx::eval(moved.arrays(s));
  archive_ = std::move(moved);
  recall_ = std::move(recall);
}

std::vector<mx::array> LayerCache::arrays(mx::StreamOrDevice s) {
  finish(s);
  if (is_empty()) {
    return {};
  }
  lend();
  // Saves no unused rows, so that a file contains no leftover memory.
  const CacheStep step{config_, offset_ - unattended_, unattended_};
  if (!ledger_) {
    const auto used = sliced(rows_->pool, 2, 0, length_, s);
    const auto key = layouts_of("arrays", config_.format, *rows_, heads_[2]).pool.key;
    const int end = int(key.bytes() / int64_t(used.itemsize()));
    return {sliced(used, 3, 0, end, s), sliced(used, 3, end, used.shape(3), s)};
  }
  std::vector<mx::array> arrays{layer_caches::used_rows(rows_->pool, step.pool_used(), s)};
  if (rows_->ring) {
    arrays.push_back(layer_caches::used_rows(*rows_->ring, step.ring_used(), s));
  }
  const auto ledger = arrays_of(*ledger_);
  arrays.insert(arrays.end(), ledger.begin(), ledger.end());
  if (chosen_) {
    arrays.push_back(*chosen_);
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
  check_ledger(function, ledger, heads_[0], heads_[1], config_.max_size, heads_[2]);
  ledger_ = std::move(ledger);
}

int LayerCache::value_dim() const {
  if (!rows_) {
    return 0;
  }
  return layouts_of("value_dim", config_.format, *rows_, heads_[2]).pool.value.dim;
}

size_t LayerCache::row_bytes() const {
  return rows_ ? layer_caches::bytes_of(arrays_of(*rows_)) : 0;
}

size_t LayerCache::ledger_bytes() const {
  return rows_ && ledger_ ? layer_caches::bytes_of(arrays_of(*ledger_)) : 0;
}

size_t LayerCache::nbytes() const {
  return row_bytes() + ledger_bytes() + (rows_ && archive_ ? archive_->nbytes() : 0);
}

} // namespace h2o
