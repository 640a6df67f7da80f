#include "checks.h"
#include "functions.h"
#include "mlx/ops.h"
#include "row_layout.h"
#include "unit_keys.h"

namespace h2o {

Ledger make_ledger(
    int batch, int kv_heads, int key_dim, const CacheConfig& config, mx::StreamOrDevice s) {
  validate(config);
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
    const mx::array& rows,
    const Ledger& ledger,
    int length,
    const RowFormat& format,
    mx::StreamOrDevice s) {
  int size = ledger.scores.shape(2), key_dim = ledger.key_sum.shape(2);
  if (length < 0 || length > size || length > rows.shape(2)) {
    refuse("trim_ledger", "length is ", length, "; expected 0...", size, ".");
  }
  auto stays = mx::less(mx::arange(size, s), mx::array(length), s);
  auto used = mx::slice(
      rows, {0, 0, 0, 0}, {rows.shape(0), rows.shape(1), length, rows.shape(3)}, s);
  auto keys = unpacked_rows(used, format, key_dim, mx::float32, s).first;
  return {
      mx::where(stays, ledger.scores, mx::array(-1.0f), s),
      mx::where(stays, ledger.positions, mx::array(-1), s),
      mx::where(stays, ledger.novelty, mx::array(0.0f), s),
      mx::sum(unit_keys(keys, s), 2, false, s),
      mx::full(ledger.victim.shape(), -1, mx::int32, s)};
}

} // namespace h2o
