#include "recall.h"

#include "cache_step.h"
#include "fallback.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"
#include "row_layout.h"

namespace h2o {

namespace reading {

/// The most bytes of logits, keys and values of one tile; a tile has at least one
/// segment.
constexpr int64_t tile_bytes = 8 << 20;

/// The least `largest` of a query: exp(lowest - largest), the weight of a hidden position,
/// is then always 0.
constexpr float least_largest = lowest / 2;

/// Keys [B, Hkv, n, Dk] in float32, and what is added to their logits [B, Hkv, 1, n]: 0, or
/// -infinity for keys to leave out.
struct Keys {
  mx::array keys;
  std::optional<mx::array> bias = std::nullopt;
};

/// The queries' outputs [B, Hkv, G * a, Dv] over the tiles so far, with the largest logit
/// and the sum of exp(logit - largest), both [B, Hkv, G * a, 1].
struct Merged {
  mx::array out;
  mx::array largest;
  mx::array sum;
};

class Reader {
 public:
  Reader(
      const Asking& asking,
      const mx::array& values,
      const ArchivedCache& cache,
      const CacheConfig& config,
      mx::StreamOrDevice s)
      : asking_(asking),
        cache_(cache),
        config_(config),
        s_(s),
        queries_(as_stored(asking.queries, config.format, s)),
        keys_(as_stored(asking.keys, config.format, s)),
        values_(as_stored(values, config.format, s)),
        in_memory_(cache.archive.blocks(s)),
        batch_(asking.keys.shape(0)),
        kv_heads_(asking.keys.shape(1)),
        asks_(asking.keys.shape(2)),
        group_(asking.queries.shape(1) / kv_heads_),
        archived_(cache.archive.length() - cache.archive.first()),
        column_(column_of_rows()),
        bias_(bias_of_kept()),
        scaled_(scaled_queries()) {
    const int64_t floats = keys_.shape(3) + values_.shape(3);
    const int64_t token_bytes =
        batch_ * (kv_heads_ * floats + asking.queries.shape(1) * asks_) * 4;
    segments_ = int(std::max<int64_t>(1, tile_bytes / (token_bytes * segment_tokens)));
  }

  std::optional<Reading> run() {
    Merged merged = first();
    merged = with(merged, own_logits(), mx::astype(values_, mx::float32, s_));
    const auto [row_keys, row_values] = rows_in_use();
    merged = with(merged, logits({row_keys}), row_values);
    const int blocks = cache_.archive.files().stored() + int(in_memory_.size());
    for (int block = 0; block < blocks; block += segments_) {
      const int end = std::min(blocks, block + segments_);
      const auto packed = archived(block, end);
      const RowLayout layout = cache_.archive.layout();
      auto next = with(
          merged, logits(keys_of(packed, block)), wide(of_archive(packed, layout.value)));
      in_turn({merged.out, merged.sum}, {next.out, next.largest, next.sum});
      merged = next;
    }
    const auto total = logarithm_of_total(merged);
    std::vector<mx::array> strongest;
    for (int block = 0; block < blocks; block += segments_) {
      const auto keys = archived_keys(block, std::min(blocks, block + segments_));
      auto next = largest_shares(logits(keys), total);
      in_turn(
          strongest.empty() ? std::vector<mx::array>{} : std::vector{strongest.back()},
          {next});
      strongest.push_back(next);
    }
    if (cache_.archive.failure()) {
      return std::nullopt;
    }
    return Reading{
        output(merged), with_kept(strongest, largest_shares(logits({row_keys}), total))};
  }

 private:
  const Asking& asking_;
  const ArchivedCache& cache_;
  const CacheConfig& config_;
  mx::StreamOrDevice s_;
  mx::array queries_, keys_, values_; // rotated if the rows are rotated
  const std::vector<ArchiveBlock>& in_memory_;
  int batch_, kv_heads_, asks_, group_, archived_;
  int segments_ = 1; // segments of a tile
  mx::array
      column_;     // int32 [B, Hkv, C]: a row's archived position, or a column behind them
  mx::array bias_; // [B, Hkv, 1, archived]: -infinity for positions in the cache, else 0
  mx::array scaled_; // [B, Hkv, G * a, Dk]

  mx::array column_of_rows() {
    const auto& positions = cache_.ledger.positions;
    const mx::array first(cache_.archive.first()), end(cache_.offset);
    auto inside = mx::logical_and(
        mx::greater_equal(positions, first, s_), mx::less(positions, end, s_), s_);
    return mx::where(inside, mx::subtract(positions, first, s_), mx::array(archived_), s_);
  }

  mx::array bias_of_kept() {
    auto bias = mx::zeros({batch_, kv_heads_, archived_ + 1}, mx::float32, s_);
    auto hiding = mx::full(column_.shape(), -infinity, mx::float32, s_);
    bias = mx::put_along_axis(bias, column_, hiding, 2, s_);
    return mx::expand_dims(sliced(bias, 2, 0, archived_, s_), 2, s_);
  }

  mx::array scaled_queries() {
    auto wide =
        mx::multiply(mx::astype(queries_, mx::float32, s_), mx::array(asking_.scale), s_);
    return mx::reshape(wide, {batch_, kv_heads_, group_ * asks_, queries_.shape(3)}, s_);
  }

  /// The state before any tile: only sinks, which have a logit and no value.
  Merged first() {
    const mx::Shape lines{batch_, kv_heads_, group_ * asks_, 1};
    auto shape = lines;
    shape[3] = values_.shape(3);
    auto out = mx::zeros(shape, mx::float32, s_);
    if (!asking_.sinks) {
      return {
          out, mx::full(lines, least_largest, mx::float32, s_),
          mx::zeros(lines, mx::float32, s_)};
    }
    auto sinks = mx::reshape(
        mx::astype(*asking_.sinks, mx::float32, s_), {1, kv_heads_, group_, 1, 1}, s_);
    sinks = mx::maximum(sinks, mx::array(least_largest), s_);
    sinks = mx::broadcast_to(sinks, {batch_, kv_heads_, group_, asks_, 1}, s_);
    return {out, mx::reshape(sinks, lines, s_), mx::ones(lines, mx::float32, s_)};
  }

  /// Logits of the asking tokens among themselves, [B, Hkv, G * a, a].
  mx::array own_logits() {
    const Mask mask = asking_.mask.values ? asking_.mask : Mask{true};
    auto logits = fallback::masked_logits(
        queries_, keys_, asking_.scale, mask, asks_, /* low_bias_hides */ true, s_);
    logits = mx::reshape(logits, {batch_, kv_heads_, group_ * asks_, asks_}, s_);
    return finite(logits, lowest);
  }

  /// Keys and values of the rows in use, in float32.
  std::pair<mx::array, mx::array> rows_in_use() {
    auto parts = [&](const mx::array& rows, const RowFormat& format, int count) {
      auto used = sliced(rows, 2, 0, count, s_);
      return unpacked_rows(used, format, keys_.shape(3), mx::float32, s_);
    };
    const CacheStep step{config_, cache_.offset, 0};
    auto [keys, values] = parts(cache_.rows.pool, config_.format, step.pool_used());
    if (cache_.rows.ring) {
      auto newest = parts(*cache_.rows.ring, config_.format.ring(), step.ring_used());
      keys = mx::concatenate({wide(keys), wide(newest.first)}, 2, s_);
      values = mx::concatenate({wide(values), wide(newest.second)}, 2, s_);
    }
    return {wide(keys), wide(values)};
  }

  /// The packed tokens of the blocks [begin, end).
  mx::array archived(int begin, int end) {
    Archive& archive = cache_.archive;
    const int stored = archive.files().stored();
    const auto dtype = rows_dtype(archive.layout(), archive.format().dtype);
    std::vector<mx::array> parts;
    for (int block = begin; block < std::min(end, stored); ++block) {
      const mx::Shape heads{batch_, kv_heads_};
      parts.push_back(archive.files().load(block, heads, dtype, archive.layout()).rows);
    }
    for (int block = std::max(begin, stored); block < end; ++block) {
      parts.push_back(in_memory_[block - stored].rows);
    }
    return mx::concatenate(parts, 2, s_);
  }

  /// The keys of these blocks. Values in files are not read.
  Keys archived_keys(int begin, int end) {
    return keys_of(cache_.archive.packed_keys(0, kv_heads_, begin, end, s_), begin);
  }

  Keys keys_of(const mx::array& packed, int begin) {
    const int first = begin * segment_tokens;
    auto bias = sliced(bias_, 3, first, first + packed.shape(2), s_);
    return {wide(of_archive(packed, cache_.archive.layout().key)), bias};
  }

  mx::array of_archive(const mx::array& packed, const VectorLayout& vector) {
    return unpacked(packed, vector, cache_.archive.format(), mx::float32, s_);
  }

  mx::array wide(const mx::array& a) {
    return mx::astype(a, mx::float32, s_);
  }

  /// `a` with `other` for NaN and infinities.
  mx::array finite(const mx::array& a, float other) {
    auto is_finite = mx::less(mx::abs(a, s_), mx::array(infinity), s_);
    return mx::where(is_finite, a, mx::array(other), s_);
  }

  /// Logits [B, Hkv, G * a, n]; hidden ones are the lowest finite float.
  mx::array logits(const Keys& tile) {
    auto all = mx::matmul(scaled_, mx::swapaxes(tile.keys, 2, 3, s_), s_);
    return finite(tile.bias ? mx::add(all, *tile.bias, s_) : all, lowest);
  }

  Merged with(const Merged& merged, const mx::array& logits, const mx::array& values) {
    auto largest = mx::maximum(merged.largest, mx::max(logits, -1, true, s_), s_);
    auto weights = mx::exp(mx::subtract(logits, largest, s_), s_);
    auto fading = mx::exp(mx::subtract(merged.largest, largest, s_), s_);
    // The value of a hidden position may be NaN or infinite, and 0 times that is NaN.
    auto sum = mx::matmul(weights, finite(values, 0), s_);
    return {
        mx::add(mx::multiply(merged.out, fading, s_), sum, s_), largest,
        mx::add(mx::multiply(merged.sum, fading, s_), mx::sum(weights, -1, true, s_), s_)};
  }

  /// The logarithm of each query's sum of exp(logit), [B, Hkv, G * a, 1]; infinity for a
  /// query that sees no position.
  mx::array logarithm_of_total(const Merged& merged) {
    auto none = mx::equal(merged.sum, mx::array(0.0f), s_);
    auto total = mx::add(merged.largest, mx::log(merged.sum, s_), s_);
    return mx::where(none, mx::array(infinity), total, s_);
  }

  /// The largest probability over the queries, [B, Hkv, G, n].
  mx::array largest_shares(const mx::array& logits, const mx::array& total) {
    // The largest logarithm first, so that each position needs one exp, not one per query.
    auto shares = mx::subtract(logits, total, s_);
    const mx::Shape by_query{batch_, kv_heads_, group_, asks_, logits.shape(3)};
    return mx::exp(mx::max(mx::reshape(shares, by_query, s_), 3, false, s_), s_);
  }

  /// Evaluates tile by tile: queues `next`, and waits for the tile before it.
  static void in_turn(std::vector<mx::array> last, std::vector<mx::array> next) {
    mx::async_eval(std::move(next));
    mx::eval(std::move(last));
  }

  mx::array output(const Merged& merged) {
    auto none = mx::equal(merged.sum, mx::array(0.0f), s_);
    auto out = mx::where(none, mx::array(0.0f), mx::divide(merged.out, merged.sum, s_), s_);
    out = mx::reshape(out, {batch_, kv_heads_ * group_, asks_, out.shape(3)}, s_);
    return as_given(mx::astype(out, queries_.dtype(), s_), config_.format, s_);
  }

  /// Joins the tiles to [B, Hq, archived]. A position in the cache gets the value of its row
  /// in `rows`.
  mx::array with_kept(std::vector<mx::array> tiles, const mx::array& rows) {
    tiles.push_back(mx::zeros({batch_, kv_heads_, group_, 1}, mx::float32, s_));
    auto all = mx::concatenate(tiles, 3, s_);
    auto columns = mx::broadcast_to(mx::expand_dims(column_, 2, s_), rows.shape(), s_);
    all = mx::put_along_axis(all, columns, rows, 3, s_);
    all = sliced(all, 3, 0, archived_, s_);
    return mx::reshape(all, {batch_, kv_heads_ * group_, archived_}, s_);
  }
};

} // namespace reading

std::optional<Reading> read_everything(
    const Asking& asking,
    const mx::array& values,
    const ArchivedCache& cache,
    const CacheConfig& config,
    mx::StreamOrDevice s) {
  return reading::Reader(asking, values, cache, config, s).run();
}

} // namespace h2o
