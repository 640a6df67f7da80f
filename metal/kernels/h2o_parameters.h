#pragma once

#include "h2o_policy_parameters.h"

/// The parameters that the host passes to our kernels by value. Metal and C++ read this
/// file; C++ includes <cstdint> first. Strides and offsets are in bytes.

/// Head dims that attention is instantiated for.
#define H2O_HEAD_DIMS 64, 96, 128, 256

/// The row (or slot) number of a token that overwrites the victim.
#define H2O_OVER_VICTIM -1

/// Values of h2o_mask_kind: the type of the mask that the ledger's kernel reads.
#define H2O_MASK_NONE 0
#define H2O_MASK_BOOL 1
#define H2O_MASK_FLOAT32 2
#define H2O_MASK_FLOAT16 3
#define H2O_MASK_BFLOAT16 4

/// Keys or values of one part of the rows: arrays [B * Hkv, N, ...] of words (elements, if
/// not quantized) and of scales and biases, which have the same strides.
struct H2OVectors {
  int64_t word_head;
  int64_t word_row;
  int64_t scale_head;
  int64_t scale_row;
};

/// Attention over quantized rows: the pool's, then the ring's.
struct H2OAttention {
  int32_t group; // query heads of a KV head
  int32_t query_heads;
  int32_t pool_rows;
  int32_t ring_rows;
  float scale;
  int32_t mask_head; // strides in elements
  int32_t mask_query;
  int32_t mask_row;
  H2OVectors pool_keys;
  H2OVectors pool_values;
  H2OVectors ring_keys;
  H2OVectors ring_values;
};

/// Offsets of a vector in a row: of words, scales and biases.
struct H2OVectorLayout {
  int32_t dim;
  int32_t words;
  int32_t scales;
  int32_t biases;
};

/// A buffer of rows [B * Hkv, capacity, row].
struct H2ORows {
  int64_t head;
  int64_t row;
  H2OVectorLayout key;
  H2OVectorLayout value;
};

/// New keys or values [B, Hkv, L, D], strides in elements.
struct H2OTokens {
  int64_t batch;
  int64_t head;
  int64_t token;
  int64_t element;
};

/// Tokens that are written to rows, or to a ring whose oldest token moves to the pool.
struct H2OWrite {
  int32_t kv_heads;
  int32_t
      first_row;  // row of the first token, in the ring if there is one; or H2O_OVER_VICTIM
  int32_t leaves; // whether the ring's row is moved to the pool first
  int32_t pool_used; // rows of the pool in use; below pool_size, tokens are appended
  int32_t pool_size; // rows of the pool if there is a ring, otherwise the buffer's capacity
  H2OTokens keys;
  H2OTokens values;
  H2ORows pool;
  H2ORows ring;
};

/// The ledger after some tokens were written and, if h2o_observes, attended to.
struct H2OLedger {
  int32_t kv_heads;
  int32_t group;
  int32_t tokens;
  int32_t rows;          // rows in use now: the pool's, then the ring's
  int32_t size;          // C, entries of a head: the pool's rows, then the ring's slots
  int32_t offset;        // position of the first token
  int32_t first_row;     // entry of the first token, or H2O_OVER_VICTIM
  int32_t leaves;        // whether the ring's row moves to the pool first
  int32_t pool_used;     // rows of the pool before the tokens; without a ring, `rows`
  int32_t pool_rows;     // rows of the pool after the tokens
  int32_t pool_size;     // entries of the pool; without a ring, C
  int32_t observed_from; // index of the first token that updates scores
  int32_t chooses;       // whether the next token needs a victim
  int32_t recent_from;   // oldest position of the recent window, for the next token
  int32_t pin_count;     // number of pinned ranges
  H2OPolicyParameters policy;
  int64_t mask_batch; // strides in elements
  int64_t mask_head;
  int64_t mask_query;
  int64_t mask_row;
};

/// A copy of [outer, heads, rows, width] elements; strides in elements.
struct H2OCopy {
  int32_t heads;
  int64_t from_outer;
  int64_t from_head;
  int64_t from_row;
  int64_t from_element;
  int64_t to_outer;
  int64_t to_head;
  int64_t to_row;
};
