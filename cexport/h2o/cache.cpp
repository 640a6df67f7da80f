#include "cache_step.h"
#include "checks.h"
#include "functions.h"
#include "mlx/ops.h"
#include "rotation.h"
#include "row_layout.h"
#include "unit_keys.h"

namespace h2o {

Ledger make_ledger(
    int batch, int kv_heads, int key_dim, const CacheConfig& config, mx::StreamOrDevice s) {
  if (batch < 1 || kv_heads < 1 || key_dim < 1) {
    refuse(
        "make_ledger", "batch, kv_heads and key_dim are ", batch, ", ", kv_heads, " and ",
        key_dim, "; each must be at least 1.");
  }
  mx::Shape rows{batch, kv_heads, config.max_size};
  return {
      mx::full(rows, -1.0f, mx::float32, s), mx::full(rows, -1, mx::int32, s),
      mx::zeros(rows, mx::float32, s),
      mx::zeros({batch, kv_heads, key_dim}, mx::float32, s),
      mx::full({batch, kv_heads}, -1, mx::int32, s)};
}

Ledger trim_ledger(
    const Rows& rows,
    const Ledger& ledger,
    int length,
    const CacheConfig& config,
    mx::StreamOrDevice s) {
  constexpr const char* function = "trim_ledger";
  if (rows.ring || config.format.has_ring()) {
    refuse(function, "a cache with a ring cannot be trimmed.");
  }
  check_rows(function, rows, config.format);
  const int size = config.max_size;
  const int key_dim = ledger.key_sum.ndim() == 3 ? ledger.key_sum.shape(2) : 0;
  check_ledger(function, ledger, rows.pool.shape(0), rows.pool.shape(1), size, key_dim);
  if (length < 0 || length > size || length > rows.pool.shape(2)) {
    refuse(function, "length is ", length, "; expected between 0 and ", size, ".");
  }
  auto stays = mx::less(mx::arange(size, s), mx::array(length), s);
  auto key_sum = mx::zeros_like(ledger.key_sum, s);
  if (length > 0) {
    auto first = first_rows(rows.pool, length, s);
    auto keys = unpacked_rows(first, config.format, key_dim, mx::float32, s).first;
    key_sum = mx::sum(unit_keys(keys, s), 2, false, s);
  }
  return {
      mx::where(stays, ledger.scores, mx::array(-1.0f), s),
      mx::where(stays, ledger.positions, mx::array(-1), s),
      mx::where(stays, ledger.novelty, mx::array(0.0f), s),
      key_sum,
      mx::full(ledger.victim.shape(), -1, mx::int32, s),
      ledger.held};
}

std::pair<mx::array, mx::array> cache_fetch(
    const Rows& rows,
    int key_dim,
    int offset,
    int tokens,
    const CacheConfig& config,
    mx::StreamOrDevice s) {
  const CacheStep step{config, offset, tokens};
  check_tokens("cache_fetch", offset, tokens, 0);
  check_rows_in_use("cache_fetch", rows, step);
  layouts_of("cache_fetch", config.format, rows, key_dim);
  auto fetch = [&](const mx::array& a, int count, const RowFormat& format) {
    auto [keys, values] =
        unpacked_rows(first_rows(a, count, s), format, key_dim, format.dtype, s);
    return std::pair{as_given(keys, config.format, s), as_given(values, config.format, s)};
  };
  if (step.ring_used() == 0) {
    return fetch(rows.pool, step.pool_used(), config.format);
  }
  auto newest = fetch(*rows.ring, step.ring_used(), config.format.ring());
  if (step.pool_used() == 0) {
    return newest;
  }
  auto older = fetch(rows.pool, step.pool_used(), config.format);
  return {
      mx::concatenate({older.first, newest.first}, 2, s),
      mx::concatenate({older.second, newest.second}, 2, s)};
}

} // namespace h2o
