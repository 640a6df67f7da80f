/* A C99 program that uses every function of the C API; ends with 0 if all is well. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "mlx.h"

enum { heads = 4, kv_heads = 2, dim = 64, size = 40, recent = 12 };

static int failures = 0;
static char last_error[1024];

static void check(int ok, const char* what) {
  if (!ok) {
    ++failures;
    printf("failed: %s\n", what);
  }
}

static void remember_error(const char* message, void* data) {
  (void)data;
  strncpy(last_error, message, sizeof(last_error) - 1);
}

static float next_number(void) {
  static uint64_t state = 1;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (float)(state >> 40) / (float)(1 << 23) - 1.0f;
}

static mlx_array numbers(const int* shape, int axes) {
  static float values[heads * 64 * dim];
  int count = 1;
  for (int i = 0; i < axes; ++i) {
    count *= shape[i];
  }
  for (int i = 0; i < count; ++i) {
    values[i] = next_number();
  }
  return mlx_array_new_data(values, shape, axes, MLX_FLOAT32);
}

static mlx_array tokens(int head_count, int count) {
  const int shape[] = {1, head_count, count, dim};
  return numbers(shape, 4);
}

static const float* floats(mlx_array a) {
  mlx_array_eval(a);
  return (const float*)mlx_array_data_uint8(a);
}

static double largest_difference(mlx_array a, mlx_array b) {
  const float* x = floats(a);
  const float* y = floats(b);
  double largest = 0.0;
  for (size_t i = 0; i < mlx_array_size(a); ++i) {
    double difference = fabs((double)x[i] - (double)y[i]);
    largest = difference > largest || isnan(difference) ? difference : largest;
  }
  return largest;
}

static mlx_h2o_config config_of(int bits, int recent_bits) {
  static const int pinned[] = {5, 7};
  mlx_h2o_config config = {0};
  config.policy.max_size = size;
  config.policy.sink_size = 2;
  config.policy.heavy_budget = 10;
  config.policy.recent_budget = recent;
  config.policy.score = MLX_H2O_SCORE_PEAK;
  config.policy.decay = 0.999f;
  config.policy.novelty = 2.0f;
  config.policy.observation_window = 8;
  config.policy.pinned = pinned;
  config.policy.pinned_num = 1;
  config.key_bits = bits;
  config.value_bits = bits;
  config.group_size = 64;
  config.dtype = MLX_FLOAT32;
  config.recent_bits = recent_bits;
  return config;
}

typedef struct cache_ {
  mlx_h2o_rows rows;
  mlx_h2o_ledger ledger;
  mlx_h2o_config config;
  int offset;
} cache;

static cache new_cache(int bits, int recent_bits, mlx_stream s) {
  cache c;
  memset(&c, 0, sizeof(c));
  c.config = config_of(bits, recent_bits);
  check(mlx_h2o_ledger_init(&c.ledger, 1, kv_heads, dim, c.config, s) == 0, "ledger_init");
  return c;
}

/* The attention of new tokens through a cache. */
static mlx_array step(cache* c, mlx_array q, mlx_array k, mlx_array v, mlx_stream s) {
  const int count = mlx_array_dim(k, 2);
  mlx_h2o_write_arguments write = {.rows = c->rows, .keys = k, .values = v};
  write.victim = c->ledger.victim;
  write.offset = c->offset;
  check(mlx_h2o_cache_write(&c->rows, write, c->config, s) == 0, "write");
  mlx_h2o_attend_arguments attend = {.queries = q, .rows = c->rows, .ledger = c->ledger};
  attend.tokens = count;
  attend.offset = c->offset;
  attend.scale = 0.125f;
  attend.mask_mode = count > 1 ? "causal" : NULL;
  mlx_array out = {NULL};
  check(
      mlx_h2o_cache_attend(&out, &c->rows, &c->ledger, attend, c->config, s) == 0,
      "attend");
  c->offset += count;
  return out;
}

static void check_positions(const cache* c, const char* what) {
  mlx_array_eval(c->ledger.positions);
  const int32_t* positions = (const int32_t*)mlx_array_data_uint8(c->ledger.positions);
  for (int head = 0; head < kv_heads; ++head) {
    int seen[1024] = {0};
    for (int row = 0; row < size; ++row) {
      const int position = positions[head * size + row];
      check(position >= 0 && position < c->offset && !seen[position], what);
      seen[position] = 1;
    }
    check(seen[0] && seen[1] && seen[5] && seen[6], what);
    for (int back = 1; back <= recent; ++back) {
      check(seen[c->offset - back], what);
    }
  }
}

static void check_caches(mlx_stream s) {
  cache dense = new_cache(16, 0, s), eight = new_cache(8, 0, s);
  cache same = new_cache(16, 16, s), mixed = new_cache(8, 16, s);
  const int counts[] = {5, 50, 1, 1, 7};
  for (int i = 0; i < 60; ++i) {
    const int count = i < 5 ? counts[i] : 1;
    mlx_array q = tokens(heads, count), k = tokens(kv_heads, count);
    mlx_array v = tokens(kv_heads, count);
    mlx_array out = step(&dense, q, k, v, s), twin = step(&same, q, k, v, s);
    mlx_array close = step(&eight, q, k, v, s), other = step(&mixed, q, k, v, s);
    check(largest_difference(out, twin) < 1e-5, "mixed 16/16 equals dense");
    check(isfinite(floats(close)[0]) && isfinite(floats(other)[0]), "finite outputs");
    mlx_array all[] = {q, k, v, out, twin, close, other};
    for (int j = 0; j < 7; ++j) {
      mlx_array_free(all[j]);
    }
  }
  check_positions(&dense, "dense positions");
  check_positions(&eight, "8-bit positions");
  check_positions(&same, "mixed 16/16 positions");
  check_positions(&mixed, "mixed positions");
  cache caches[] = {dense, eight, same, mixed};
  for (int i = 0; i < 4; ++i) {
    mlx_h2o_ledger_free(caches[i].ledger);
    mlx_h2o_rows_free(caches[i].rows);
  }
}

/* Plain attention over fetched rows equals that of the cache, in every storage. */
static void check_fetch(mlx_stream s) {
  cache caches[] = {
      new_cache(16, 0, s), new_cache(8, 0, s), new_cache(16, 16, s), new_cache(4, 8, s)};
  mlx_array q = tokens(heads, 1), k = tokens(kv_heads, 1);
  const mlx_array none = {NULL};
  for (int i = 0; i < 4; ++i) {
    cache* c = &caches[i];
    mlx_array first = tokens(kv_heads, 30), queries = tokens(heads, 30);
    mlx_array_free(step(c, queries, first, first, s));
    mlx_array out = step(c, q, k, k, s);
    mlx_array keys = {NULL}, values = {NULL}, wanted = {NULL}, logits = {NULL};
    const int status =
        mlx_h2o_cache_fetch(&keys, &values, c->rows, dim, 31, 0, c->config, s);
    check(status == 0 && mlx_array_dim(keys, 2) == 31, "fetch");
    mlx_fast_scaled_dot_product_attention_with_scores(
        &wanted, &logits, q, keys, values, 0.125f, "", none, none, s);
    check(largest_difference(out, wanted) < 1e-5, "attention over fetched rows");
    mlx_array all[] = {first, queries, out, keys, values, wanted, logits};
    for (int j = 0; j < 7; ++j) {
      mlx_array_free(all[j]);
    }
    mlx_h2o_rows_free(c->rows);
    mlx_h2o_ledger_free(c->ledger);
  }
  mlx_array_free(q);
  mlx_array_free(k);
}

static void check_trim(mlx_stream s) {
  cache c = new_cache(8, 0, s);
  mlx_array q = tokens(heads, 9), k = tokens(kv_heads, 9);
  mlx_array_free(step(&c, q, k, k, s));
  check(mlx_h2o_ledger_trim(&c.ledger, c.rows, c.ledger, 4, c.config, s) == 0, "trim");
  mlx_array_eval(c.ledger.positions);
  const int32_t* positions = (const int32_t*)mlx_array_data_uint8(c.ledger.positions);
  check(positions[3] == 3 && positions[4] == -1, "trimmed positions");
  mlx_h2o_ledger_free(c.ledger);
  mlx_h2o_rows_free(c.rows);
  mlx_array_free(q);
  mlx_array_free(k);
}

/* Attention over words, scales and biases against the same numbers widened here. */
static void check_attention(mlx_stream s) {
  enum { rows = 33, words = dim / 4 };
  static uint32_t packed[kv_heads * rows * words];
  static float scales[kv_heads * rows], biases[kv_heads * rows],
      wide[kv_heads * rows * dim];
  for (int row = 0; row < kv_heads * rows; ++row) {
    scales[row] = 0.01f * next_number();
    biases[row] = next_number();
    for (int word = 0; word < words; ++word) {
      packed[row * words + word] = (uint32_t)(next_number() * 2147483000.0f);
      for (int byte = 0; byte < 4; ++byte) {
        const uint32_t q = packed[row * words + word] >> (8 * byte) & 255u;
        wide[row * dim + 4 * word + byte] = scales[row] * (float)q + biases[row];
      }
    }
  }
  const int word_shape[] = {1, kv_heads, rows, words}, one[] = {1, kv_heads, rows, 1};
  const int wide_shape[] = {1, kv_heads, rows, dim};
  mlx_array w = mlx_array_new_data(packed, word_shape, 4, MLX_UINT32);
  mlx_array sc = mlx_array_new_data(scales, one, 4, MLX_FLOAT32);
  mlx_array bi = mlx_array_new_data(biases, one, 4, MLX_FLOAT32);
  mlx_array k = mlx_array_new_data(wide, wide_shape, 4, MLX_FLOAT32);
  mlx_array q = tokens(heads, 3);
  const mlx_array none = {NULL};
  mlx_array out = {NULL}, scores = {NULL}, wanted = {NULL}, logits = {NULL};
  check(
      mlx_fast_scaled_dot_product_attention_quantized_with_scores(
          &out, &scores, q, w, sc, bi, w, sc, bi, 0.125f, 8, 8, 64, "causal", none, none,
          s) == 0,
      "quantized attention");
  check(
      mlx_fast_scaled_dot_product_attention_with_scores(
          &wanted, &logits, q, k, k, 0.125f, "causal", none, none, s) == 0,
      "dense attention");
  check(largest_difference(out, wanted) < 1e-5, "quantized output");
  check(largest_difference(scores, logits) < 1e-5, "quantized logits");

  check(
      mlx_fast_scaled_dot_product_attention_quantized_with_scores(
          &out, &scores, q, w, sc, bi, w, sc, bi, 0.125f, 5, 8, 64, "", none, none, s) == 1,
      "5 bits are refused");
  check(strstr(last_error, "key_bits is 5; it must be 4, 8 or 16") != NULL, last_error);
  check(
      mlx_fast_scaled_dot_product_attention_with_scores(
          &out, &scores, q, w, k, 0.125f, "", none, none, s) == 1,
      "words are refused as keys");
  check(strstr(last_error, "keys has dtype uint32; expected float32") != NULL, last_error);
  mlx_h2o_config config = config_of(16, 0);
  config.policy.recent_budget = 100;
  mlx_h2o_ledger ledger;
  memset(&ledger, 0, sizeof(ledger));
  check(mlx_h2o_ledger_init(&ledger, 1, 2, 8, config, s) == 1, "a budget is refused");
  check(strstr(last_error, "= 112 is more than max_size = 40") != NULL, last_error);
  mlx_array all[] = {w, sc, bi, k, q, out, scores, wanted, logits};
  for (int i = 0; i < 9; ++i) {
    mlx_array_free(all[i]);
  }
}

int main(void) {
  mlx_set_error_handler(remember_error, NULL, NULL);
  mlx_stream s = mlx_default_cpu_stream_new();
  check_attention(s);
  check_caches(s);
  check_fetch(s);
  check_trim(s);
  mlx_stream_free(s);
  printf("%d failures\n", failures);
  return failures != 0;
}
