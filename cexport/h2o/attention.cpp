#include <algorithm>
#include <limits>

#include "checks.h"
#include "cpu_attention.h"
#include "cpu_dispatch.h"
#include "fallback.h"
#include "functions.h"
#include "mlx/allocator.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"

namespace h2o {

namespace {

constexpr const char* function = "scaled_dot_product_attention_with_scores";

struct Settings {
  float scale;
  bool causal;
  bool masked;
  bool sunk;
};

/// inputs: queries, keys, values, then mask and sinks where there are any;
/// outputs: out, scores.
void evaluate(
    const Settings& settings,
    std::vector<mx::array>& inputs,
    std::vector<mx::array>& outputs) {
  const auto& queries = inputs[0];
  const auto& keys = inputs[1];
  const auto& values = inputs[2];
  auto& out = outputs[0];
  const int tokens = queries.shape(2);
  const int rows = keys.shape(2);
  const int group = queries.shape(1) / keys.shape(1);
  cpu::AttentionShape shape{group,           tokens,         rows,           keys.shape(3),
                            values.shape(3), settings.scale, settings.causal};
  cpu::MaskView mask;
  if (settings.masked) {
    mask = {inputs[3], {queries.shape(0), queries.shape(1), tokens, rows}};
  }
  const mx::array* sinks = settings.sunk ? &inputs.back() : nullptr;
  float* scores = outputs[1].data<float>();
  for (int b = 0; b < keys.shape(0); ++b) {
    for (int h = 0; h < keys.shape(1); ++h) {
      std::vector<float> key_storage, value_storage;
      cpu::attend_head(
          shape, queries, cpu::rows_of(keys, b, h, key_storage),
          cpu::rows_of(values, b, h, value_storage), mask, /* hide_faint */ false, sinks, b,
          h, out, [&](const cpu::QueryResult& result) {
            for (int g = 0; g < group; ++g) {
              int64_t line =
                  (int64_t(b) * queries.shape(1) + h * group + g) * tokens + result.query;
              const float* from = result.logits + g * result.stride;
              float* to = scores + line * rows;
              std::copy(from, from + result.rows, to);
              std::fill(to + result.rows, to + rows, std::numeric_limits<float>::lowest());
            }
          });
    }
  }
}

class AttentionWithScores : public mx::Primitive {
 public:
  AttentionWithScores(mx::Stream stream, Settings settings)
      : Primitive(stream), settings_(settings) {
  }

  void eval_cpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    for (auto& output : outputs) {
      output.set_data(mx::allocator::malloc(output.nbytes()));
    }
    cpu::dispatch(stream(), inputs, outputs, [settings = settings_](auto& in, auto& out) {
      evaluate(settings, in, out);
    });
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::logic_error("H2OAttentionWithScores runs on the CPU only.");
  }

  DEFINE_NAME(H2OAttentionWithScores)

 private:
  Settings settings_;
};

} // namespace

Mask make_mask(const std::string& mode, std::optional<mx::array> values) {
  if (mode != "" && mode != "causal" && mode != "array") {
    refuse("mask", "mask mode is \"", mode, "\"; expected \"\", \"array\" or \"causal\".");
  }
  return {mode == "causal", std::move(values)};
}

std::pair<mx::array, mx::array> scaled_dot_product_attention_with_scores(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    float scale,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    mx::StreamOrDevice s) {
  check_heads(function, "keys", keys, "[B, Hkv, N, Dk]");
  check_heads(function, "values", values, "[B, Hkv, N, Dv]");
  for (int axis = 0; axis < 3; ++axis) {
    if (keys.shape(axis) != values.shape(axis)) {
      refuse(
          function, "keys has shape ", keys.shape(), " and values ", values.shape(),
          "; all but the head dim must agree.");
    }
  }
  check_attention(
      function, queries, keys.shape(0), keys.shape(1), keys.shape(2), keys.shape(3), mask,
      sinks);

  auto stream = mx::to_stream(s);
  if (stream.device == mx::Device::gpu) {
    return fallback::scaled_dot_product_attention_with_scores(
        queries, keys, values, scale, mask, sinks, stream);
  }
  std::vector<mx::array> inputs{queries, keys, values};
  if (mask.values) {
    inputs.push_back(*mask.values);
  }
  if (sinks) {
    inputs.push_back(*sinks);
  }
  int lines = queries.shape(0) * queries.shape(1) * queries.shape(2);
  auto outputs = mx::array::make_arrays(
      {{queries.shape(0), queries.shape(1), queries.shape(2), values.shape(3)},
       {lines, keys.shape(2)}},
      {queries.dtype(), mx::float32},
      std::make_shared<AttentionWithScores>(
          stream, Settings{scale, mask.causal, mask.values.has_value(), sinks.has_value()}),
      inputs);
  return {outputs[0], outputs[1]};
}

} // namespace h2o
