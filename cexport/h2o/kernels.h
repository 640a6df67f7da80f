#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "policy_fields.h"

/// The inner loops of the CPU evaluation. Each is compiled for several instruction sets,
/// and the best one for the processor is chosen at first use.
namespace h2o::cpu {

enum class Element { float32, float16, bfloat16 };

/// Scales and biases of quantized vectors: MLX's affine quantization, x = scale * q +
/// bias for each group of elements.
struct Packing {
  int bits = 16; // 4 or 8; 2: only for largest_dots; 16: not quantized
  int group_size = 0;
  Element element = Element::float32; // of scales and biases
  const void* scales = nullptr;
  const void* biases = nullptr;
  int64_t scale_stride = 0; // bytes from one row's scales to the next's
  int64_t bias_stride = 0;
};

/// Vectors of one KV head, `stride` bytes apart, each contiguous.
struct RowsView {
  const void* data;
  Element element; // of vectors that are not quantized
  int64_t stride;
  Packing packing = {};
};

/// The ledger of one KV head; its empty rows come last.
struct HeadLedger {
  float* scores;
  int32_t* positions;
};

/// The loops compiled for one instruction set.
struct Kernels {
  const char* name;
  bool (*is_available)(); // whether this processor has it

  /// out[h * out_stride + n] = sum over d of queries[h * dim + d] * rows[n][d].
  void (*dot_rows)(
      const float* queries,
      int heads,
      RowsView rows,
      int row_count,
      int dim,
      float* out,
      int64_t out_stride);

  /// out[n] = the largest finite product of rows[n] with the queries; -infinity if none is.
  void (*largest_dots)(
      const float* queries, int heads, RowsView rows, int row_count, int dim, float* out);

  /// out[h * dim + d] = sum over n of weights[h * weight_stride + n] * rows[n][d],
  /// added to the values in `out` if `accumulate` is true.
  void (*mix_rows)(
      const float* weights,
      int heads,
      int64_t weight_stride,
      RowsView rows,
      int row_count,
      int dim,
      bool accumulate,
      float* out);

  void (*to_float32)(RowsView rows, int row_count, int dim, float* out, int64_t out_stride);

  void (*from_float32)(const float* values, int count, Element element, void* out);

  float (*largest)(const float* values, int count);

  /// out[i] = exp(values[i] - shift), 0 below the smallest normal; returns the sum.
  float (*exp_shifted)(const float* values, float shift, int count, float* out);

  /// Replaces logits that are not finite by the lowest finite float, which means hidden,
  /// and returns the largest logit.
  float (*hide_not_finite)(float* logits, int count);

  /// sum[i] += factor * values[i].
  void (*add_scaled)(const float* values, float factor, int count, float* sum);

  /// sum[i] += factor * |values[i]|, leaving out hidden rows (lowest finite float).
  void (*add_scaled_abs)(const float* values, float factor, int count, float* sum);

  /// Updates scores by the policy's `decay` and `score`: to decay * score + (1 - decay) *
  /// m, or for peak to the larger of decay * score and m. A negative score, which means
  /// not yet observed, becomes m. If m is not finite, the score does not change. m is
  /// never negative.
  void (*update_scores)(const Policy& policy, const float* m, int count, float* scores);

  /// out[i] = importance of row i, which is its score; returns the smallest. A protected row
  /// has +infinity: its position is below `sink_size`, pinned, or at least `recent_from`.
  float (*importance)(
      const Policy& policy,
      const HeadLedger& ledger,
      int count,
      int recent_from,
      float* out);

  /// Quantizes one vector in MLX's affine mode, to words of dim * bits / 8 bytes, and a scale
  /// and a bias for each group of elements. All bits equal the result of mx.quantize on the
  /// CPU, after scales and biases are converted to the dtype of the array.
  void (*quantize_vector)(
      const float* values,
      int dim,
      int bits,
      int group_size,
      uint8_t* words,
      float* scales,
      float* biases);
};

/// The loops for the instruction set in use: at first the widest of this processor.
const Kernels& kernels();

/// The names of all instruction sets of this processor, widest first.
std::vector<std::string> instruction_sets();

/// Switches to the instruction set `name`, for tests and comparisons.
void use_instruction_set(const std::string& name);

} // namespace h2o::cpu
