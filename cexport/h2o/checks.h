#pragma once

#include <sstream>
#include <stdexcept>

#include "cache_step.h"
#include "functions.h"

/// Argument checks shared by the functions. Each throws std::invalid_argument
/// with what was wrong, what it was and what is allowed.
namespace h2o {

template <class... Parts>
[[noreturn]] void refuse(const char* function, const Parts&... parts) {
  std::ostringstream text;
  text << "[" << function << "] ";
  (text << ... << parts);
  throw std::invalid_argument(text.str());
}

/// `a` must have four dimensions and a float32, float16 or bfloat16 dtype.
void check_heads(
    const char* function, const char* name, const mx::array& a, const char* layout);

/// Shapes and dtypes of a cache's ledger.
void check_ledger(
    const char* function,
    const Ledger& ledger,
    int batch,
    int kv_heads,
    int max_size,
    int key_dim);

/// The buffers of a cache must be [B, Hkv, capacity, row], fit its format, and have as many
/// rows as the step says are in use.
void check_rows_in_use(const char* function, const Rows& rows, const CacheStep& step);

/// The queries of a cache's step must be those of the tokens just written.
void check_new_queries(const char* function, const mx::array& queries, int tokens);

/// Shapes of q, k and v (or rows cut into them) that attention accepts.
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
