/* Calls every function of the C interface that takes a handle with an empty one. */
#include <stdio.h>
#include <string.h>

#include "mlx/c/error.h"
#include "mlx/c/h2o.h"

static int errors = 0;
static int failures = 0;

static void count(const char* message, void* data) {
  (void)data;
  errors += strstr(message, "is empty") != NULL;
}

/* Whether the last call reported one error, and what it gave was as it should be. */
static void check(int is_right, const char* call) {
  if (!is_right || errors != 1) {
    printf("%s: %d errors\n", call, errors);
    ++failures;
  }
  errors = 0;
}

#define FAILS(call) check((call) != 0, #call)
#define GIVES(call, value) check((call) == (value), #call)
#define GIVES_NO_TEXT(call) check(strcmp((call), "") == 0, #call)

int main(void) {
  const mlx_h2o_layer_cache none = {NULL};
  const mlx_h2o_policy policy = {NULL};
  const mlx_array array = {NULL};
  const mlx_stream stream = mlx_default_cpu_stream_new();
  const int64_t values[2] = {0, 1};
  mlx_h2o_config config;
  mlx_h2o_layer_numbers numbers;
  mlx_h2o_layer_cache cache = {NULL};
  mlx_h2o_policy whole = {NULL};
  mlx_array first = {NULL}, second = {NULL};
  mlx_vector_array arrays = {NULL};
  int removed;

  memset(&config, 0, sizeof(config));
  config.key_bits = config.value_bits = 16;
  config.group_size = 64;
  mlx_set_error_handler(count, NULL, NULL);

  FAILS(mlx_h2o_policy_set_integer(policy, "max_size", 64));
  FAILS(mlx_h2o_policy_set_text(policy, "score", "peak"));
  FAILS(mlx_h2o_policy_set_integers(policy, "pinned", values, 2));
  FAILS(mlx_h2o_policy_complete(policy));
  GIVES(mlx_h2o_policy_integer(policy, "max_size"), 0);
  GIVES_NO_TEXT(mlx_h2o_policy_text(policy, "score"));
  GIVES(mlx_h2o_policy_integers(NULL, 0, policy, "pinned"), 0);
  GIVES(mlx_h2o_policy_warning(policy, 0), false);

  FAILS(mlx_h2o_layer_cache_new(&cache, config));
  FAILS(mlx_h2o_layer_cache_copy(&cache, none));
  FAILS(mlx_h2o_layer_cache_write(&first, &second, none, array, array, stream));
  FAILS(mlx_h2o_layer_cache_attend(
      &first, none, array, array, array, 1.0f, "", array, array, stream));
  FAILS(mlx_h2o_layer_cache_settle(none, stream));
  FAILS(mlx_h2o_layer_cache_trim(&removed, none, 1, stream));
  FAILS(mlx_h2o_layer_cache_share(none));
  FAILS(mlx_h2o_layer_cache_move_archive(none, NULL, stream));
  GIVES(mlx_h2o_layer_cache_offset(none), 0);
  GIVES(mlx_h2o_layer_cache_length(none), 0);
  GIVES(mlx_h2o_layer_cache_unattended(none), 0);
  GIVES(mlx_h2o_layer_cache_is_trimmable(none), false);
  FAILS(mlx_h2o_layer_cache_numbers(&numbers, none));
  FAILS(mlx_h2o_layer_cache_ledger(&arrays, none));
  FAILS(mlx_h2o_layer_cache_rows(&arrays, none));
  FAILS(mlx_h2o_layer_cache_arrays(&arrays, none, stream));
  GIVES(mlx_h2o_layer_cache_header(none), NULL);
  FAILS(mlx_h2o_layer_cache_config(&config, none));

  /* A cache, but nothing else. */
  if (mlx_h2o_policy_new(&whole) != 0 ||
      mlx_h2o_policy_set_integer(whole, "max_size", 64) != 0 ||
      mlx_h2o_policy_complete(whole) != 0) {
    printf("no policy: %s\n", mlx_h2o_error_code());
    return 1;
  }
  config.policy = whole;
  if (mlx_h2o_layer_cache_new(&cache, config) != 0) {
    printf("no cache\n");
    return 1;
  }
  FAILS(mlx_h2o_layer_cache_write(&first, &second, cache, array, array, stream));
  FAILS(mlx_h2o_layer_cache_attend(
      &first, cache, array, array, array, 1.0f, "", array, array, stream));
  FAILS(mlx_h2o_layer_cache_restore(
      &cache, mlx_h2o_layer_cache_header(cache), arrays, NULL, stream));
  FAILS(mlx_fast_scaled_dot_product_attention_with_scores(
      &first, &second, array, array, array, 1.0f, "", array, array, stream));
  if (first.ctx || second.ctx || arrays.ctx) {
    printf("a function that failed has left a result\n");
    ++failures;
  }

  mlx_h2o_layer_cache_free(cache);
  mlx_h2o_layer_cache_free(none);
  mlx_h2o_policy_free(whole);
  mlx_h2o_policy_free(policy);
  mlx_stream_free(stream);
  return failures != 0;
}
