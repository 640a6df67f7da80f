#include "checks.h"

#include <limits>

namespace h2o {

bool is_supported(mx::Dtype dtype) {
  return dtype == mx::float32 || dtype == mx::float16 || dtype == mx::bfloat16;
}

void check_heads(
    const char* function, const char* name, const mx::array& a, const char* layout) {
  if (a.ndim() != 4 || a.shape(0) < 1 || a.shape(1) < 1 || a.shape(3) < 1) {
    refuse(function, name, " has shape ", a.shape(), "; expected ", layout, ".");
  }
  if (!is_supported(a.dtype())) {
    refuse(
        function, name, " has dtype ", a.dtype(),
        "; expected float32, float16 or bfloat16.");
  }
}

void check_tokens_of(
    const char* function,
    const mx::array& keys,
    const mx::array& values,
    const char* key_layout,
    const char* value_layout) {
  check_heads(function, "keys", keys, key_layout);
  check_heads(function, "values", values, value_layout);
  for (int axis : {0, 1, 2}) {
    if (keys.shape(axis) != values.shape(axis)) {
      refuse(
          function, "keys has shape ", keys.shape(), " and values ", values.shape(),
          "; all but the head dim must agree.");
    }
  }
}

void check_head_dim(const char* function, const char* name, int64_t dim) {
  const int64_t largest = 1 << 20;
  if (dim < 1 || dim > largest) {
    refuse(function, name, " has head dim ", dim, "; expected 1 to ", largest, ".");
  }
}

void check_ledger(
    const char* function, const Ledger& ledger, int batch, int kv_heads, int max_size) {
  auto check = [&](const char* name, const mx::array& a, const mx::Shape& shape,
                   mx::Dtype dtype) {
    if (a.shape() != shape || a.dtype() != dtype) {
      refuse(
          function, "ledger.", name, " has shape ", a.shape(), " and dtype ", a.dtype(),
          "; expected ", shape, " of ", dtype, ".");
    }
  };
  check_each(ledger, batch, kv_heads, max_size, check);
}

void check_tokens(const char* function, int offset, int tokens) {
  if (tokens < 1 || offset < 0) {
    refuse(
        function, "tokens is ", tokens, " and offset ", offset,
        "; tokens must be at least 1, offset at least 0.");
  }
  const int most = std::numeric_limits<int>::max() - 1;
  if (offset > most - tokens) {
    refuse(
        function, "offset is ", offset, " and tokens ", tokens,
        "; together they may be at most ", most, ".");
  }
}

void check_rows(const char* function, const Rows& rows, const RowFormat& format) {
  if (rows.ring.has_value() != format.has_ring()) {
    refuse(
        function, "rows has ", rows.ring ? "a ring" : "no ring", "; recent_bits is ",
        format.recent_bits, ".");
  }
  // Dense rows have the dtype of the keys; quantized rows have the dtype of the format.
  const mx::Dtype dense = format.is_all_dense() && is_supported(rows.pool.dtype())
                              ? rows.pool.dtype()
                              : format.dtype;
  const auto& pool = rows.pool;
  auto check = [&](const char* name, const mx::array& a, bool is_dense) {
    const bool fits = a.ndim() == 4 && a.shape(0) >= 1 && a.shape(1) >= 1 &&
                      a.shape(3) >= 1 && a.dtype() == (is_dense ? dense : mx::uint32) &&
                      a.shape(0) == pool.shape(0) && a.shape(1) == pool.shape(1);
    if (!fits) {
      refuse(
          function, name, " has shape ", a.shape(), " and dtype ", a.dtype(),
          "; expected what cache_write returned with this format.");
    }
  };
  check("pool", pool, format.is_dense());
  if (rows.ring) {
    check("ring", *rows.ring, format.ring().is_dense());
  }
}

void check_rows_in_use(const char* function, const Rows& rows, const CacheStep& step) {
  check_rows(function, rows, step.config.format);
  auto check = [&](const char* name, const mx::array& a, int used) {
    if (used > a.shape(2)) {
      refuse(
          function, step.tokens, " tokens after ", step.offset, " need ", used, " rows; ",
          name, " has ", a.shape(2), ". Call cache_write first.");
    }
  };
  check("pool", rows.pool, step.pool_used());
  if (rows.ring) {
    check("ring", *rows.ring, step.ring_used());
  }
}

void check_new_queries(const char* function, const mx::array& queries, int tokens) {
  if (queries.ndim() == 4 && queries.shape(2) != tokens) {
    refuse(function, "queries has ", queries.shape(2), " tokens; tokens is ", tokens, ".");
  }
}

void check_attention(
    const char* function,
    const mx::array& queries,
    int batch,
    int kv_heads,
    int rows,
    int key_dim,
    const Mask& mask,
    const std::optional<mx::array>& sinks) {
  check_heads(function, "queries", queries, "[B, Hq, L, Dk]");
  int query_heads = queries.shape(1);
  int tokens = queries.shape(2);
  if (queries.shape(0) != batch || queries.shape(3) != key_dim) {
    refuse(
        function, "queries has shape ", queries.shape(), "; the keys have batch size ",
        batch, " and head dim ", key_dim, ".");
  }
  if (kv_heads == 0 || query_heads == 0 || query_heads % kv_heads != 0) {
    refuse(
        function, "queries has ", query_heads, " heads; expected a multiple of the ",
        kv_heads, " KV heads.");
  }
  if (rows < 1 || tokens < 1) {
    refuse(
        function, "there are ", tokens, " queries over ", rows,
        " rows; expected at least one of each.");
  }
  const int64_t lines = int64_t(batch) * query_heads * tokens;
  if (lines > std::numeric_limits<int>::max()) {
    refuse(
        function, "queries has shape ", queries.shape(),
        "; batch, heads and tokens together may be at most ",
        std::numeric_limits<int>::max(), ".");
  }
  if (mask.causal && mask.values) {
    refuse(function, "mask is both causal and an array; give only one.");
  }
  if (mask.causal && tokens > rows) {
    refuse(
        function, "a causal mask with ", tokens,
        " queries needs at least as many rows; there are ", rows, ".");
  }
  if (mask.values) {
    const auto& values = *mask.values;
    if (values.dtype() != mx::bool_ && !is_supported(values.dtype())) {
      refuse(
          function, "mask has dtype ", values.dtype(),
          "; expected bool, float32, float16 or bfloat16.");
    }
    mx::Shape full{batch, query_heads, tokens, rows};
    bool fits = values.ndim() <= 4;
    for (int axis = 1; fits && axis <= int(values.ndim()); ++axis) {
      int size = values.shape(-axis);
      fits = size == 1 || size == full[4 - axis];
    }
    if (!fits) {
      refuse(
          function, "mask has shape ", values.shape(), "; expected one that broadcasts to ",
          full, ".");
    }
  }
  if (sinks && (sinks->ndim() != 1 || sinks->shape(0) != query_heads ||
                !is_supported(sinks->dtype()))) {
    refuse(
        function, "sinks has shape ", sinks->shape(), " and dtype ", sinks->dtype(),
        "; expected [", query_heads, "] of a float dtype.");
  }
}

} // namespace h2o
