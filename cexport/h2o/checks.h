#pragma once

#include <sstream>
#include <stdexcept>

#include "cache_step.h"
#include "functions.h"

/// Argument checks that the functions share. Each throws std::invalid_argument, which
/// names the argument, its value and what is allowed.
namespace h2o {

template <class... Parts>
[[noreturn]] void refuse(const char* function, const Parts&... parts) {
  std::ostringstream text;
  text << "[" << function << "] ";
  (text << ... << parts);
  throw std::invalid_argument(text.str());
}

/// Whether keys and values may have this dtype: float32, float16 or bfloat16.
bool is_supported(mx::Dtype dtype);

/// `a` must have a supported dtype and four dimensions, of which only the third may be 0.
void check_heads(
    const char* function, const char* name, const mx::array& a, const char* layout);

/// Keys [B, Hkv, L, Dk] and values [B, Hkv, L, Dv] of the same tokens. The layouts are for
/// errors.
void check_tokens_of(
    const char* function,
    const mx::array& keys,
    const mx::array& values,
    const char* key_layout = "[B, Hkv, L, Dk]",
    const char* value_layout = "[B, Hkv, L, Dv]");

/// A head dim must be 1 to 2^20, so that the size of a row cannot overflow an int.
void check_head_dim(const char* function, const char* name, int64_t dim);

/// Calls check(name, array, shape, dtype) for each array of a ledger, with the shape and
/// dtype that the array must have.
template <class Check>
void check_each(const Ledger& ledger, int batch, int kv_heads, int max_size, Check check) {
  const mx::Shape rows{batch, kv_heads, max_size};
  check("scores", ledger.scores, rows, mx::float32);
  check("positions", ledger.positions, rows, mx::int32);
  check("victim", ledger.victim, mx::Shape{batch, kv_heads}, mx::int32);
}

/// Shapes and dtypes of a cache's ledger.
void check_ledger(
    const char* function, const Ledger& ledger, int batch, int kv_heads, int max_size);

/// A step must have at least one token, at positions below the largest int32.
void check_tokens(const char* function, int offset, int tokens);

/// The buffers of a cache must be [B, Hkv, capacity, row], of one batch size and as many
/// heads, and have the dtypes that its format needs.
void check_rows(const char* function, const Rows& rows, const RowFormat& format);

/// Like check_rows, and the buffers must have the rows that the step has in use.
void check_rows_in_use(const char* function, const Rows& rows, const CacheStep& step);

/// There must be as many queries as tokens just written.
void check_new_queries(const char* function, const mx::array& queries, int tokens);

/// Checks queries, mask and sinks of an attention over `rows` keys and values.
void check_attention(
    const char* function,
    const mx::array& queries,
    int batch,
    int kv_heads,
    int rows,
    int key_dim,
    const Mask& mask,
    const std::optional<mx::array>& sinks);

} // namespace h2o
