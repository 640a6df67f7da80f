#include <algorithm>

#include "checks.h"
#include "cpu_attention.h"
#include "fallback.h"
#include "functions.h"
#include "metal/encode.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "primitives.h"

namespace h2o {

namespace {

constexpr const char* dense_function = "scaled_dot_product_attention_with_scores";
constexpr const char* quantized_function =
    "scaled_dot_product_attention_quantized_with_scores";

struct AttentionSettings {
  float scale;
  bool causal;
  bool masked;
  bool sunk;
  int key_dim;
  int value_dim;
  RowFormat format;

  /// Number of arrays that make up the keys; the values have as many.
  int parts() const {
    return format.is_dense() ? 1 : 3;
  }
};

/// The vectors of one head. `parts` points to one array of vectors that are not quantized,
/// or to words, scales and biases.
cpu::RowsView vectors_of(
    const mx::array* parts,
    int bits,
    int group_size,
    int batch,
    int head,
    std::vector<float>& storage) {
  if (bits == 16) {
    return cpu::rows_of(parts[0], batch, head, storage);
  }
  auto head_of = [&](const mx::array& a) {
    int64_t start = batch * a.strides(0) + head * a.strides(1);
    return a.data<char>() + start * int64_t(a.itemsize());
  };
  auto stride = [](const mx::array& a) {
    return a.strides(2) * int64_t(a.itemsize());
  };
  cpu::Packing packing{
      bits,
      group_size,
      cpu::element_of(parts[1].dtype()),
      head_of(parts[1]),
      head_of(parts[2]),
      stride(parts[1]),
      stride(parts[2])};
  return {head_of(parts[0]), packing.element, stride(parts[0]), packing};
}

/// inputs: queries, the keys' and the values' parts, then mask and sinks if present;
/// outputs: out, scores.
void evaluate(
    const AttentionSettings& settings,
    std::vector<mx::array>& inputs,
    std::vector<mx::array>& outputs) {
  const auto& queries = inputs[0];
  const mx::array* keys = &inputs[1];
  const mx::array* values = keys + settings.parts();
  auto& out = outputs[0];
  const int batch = keys->shape(0), kv_heads = keys->shape(1), rows = keys->shape(2);
  const int tokens = queries.shape(2), group = queries.shape(1) / kv_heads;
  const RowFormat& format = settings.format;
  cpu::AttentionShape shape{
      group,          tokens,         rows, settings.key_dim, settings.value_dim,
      settings.scale, settings.causal};
  cpu::MaskView mask;
  if (settings.masked) {
    mask = {values[settings.parts()], {queries.shape(0), queries.shape(1), tokens, rows}};
  }
  const mx::array* sinks = settings.sunk ? &inputs.back() : nullptr;
  float* scores = outputs[1].data<float>();
  cpu::Workspace workspace;
  for (int b = 0; b < batch; ++b) {
    for (int h = 0; h < kv_heads; ++h) {
      std::vector<float> key_storage, value_storage;
      auto head_keys =
          vectors_of(keys, format.key_bits, format.group_size, b, h, key_storage);
      auto head_values =
          vectors_of(values, format.value_bits, format.group_size, b, h, value_storage);
      cpu::attend_head(
          shape, queries, {{head_keys, head_values, rows}}, mask,
          /* low_bias_hides */ false, sinks, std::nullopt, b, h, out, workspace,
          [&](const cpu::QueryResult& result) {
            for (int g = 0; g < group; ++g) {
              int64_t line =
                  (int64_t(b) * queries.shape(1) + h * group + g) * tokens + result.query;
              const float* from = result.logits + g * result.stride;
              float* to = scores + line * rows;
              std::copy(from, from + result.rows, to);
              std::fill(to + result.rows, to + rows, lowest);
            }
          });
    }
  }
}

class AttentionWithScores : public mx::Primitive {
 public:
  AttentionWithScores(mx::Stream stream, AttentionSettings settings)
      : Primitive(stream), settings_(settings) {
  }

  void eval_cpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    if (!settings_.format.is_dense()) {
      for (int i = 1; i <= 2 * settings_.parts(); ++i) {
        if (inputs[i].shape(3) > 1 && inputs[i].strides(3) != 1) {
          refuse(
              quantized_function,
              "words, scales and biases must be contiguous in their "
              "last dimension.");
        }
      }
    }
    for (auto& output : outputs) {
      output.set_data(allocated(output));
    }
    cpu::dispatch(stream(), inputs, outputs, [settings = settings_](auto& in, auto& out) {
      evaluate(settings, in, out);
    });
  }

  void eval_gpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    for (auto& output : outputs) {
      output.set_data(allocated(output));
    }
    const auto keys = inputs.begin() + 1, values = keys + settings_.parts();
    const auto rest = values + settings_.parts();
    std::vector<int64_t> offsets(settings_.parts(), 0);
    metal::Part part{
        keys->shape(2),
        settings_.format.key_bits,
        settings_.format.value_bits,
        {keys, values},
        {values, rest},
        offsets,
        offsets};
    metal::Attention attention{
        inputs[0],
        {part},
        keys->shape(1),
        settings_.key_dim,
        settings_.format.group_size,
        settings_.scale,
        settings_.causal,
        std::nullopt,
        std::nullopt};
    if (settings_.masked) {
      attention.mask = rest[1];
    }
    if (settings_.sunk) {
      attention.sinks = inputs.back();
    }
    metal::attend(stream(), attention, outputs[0], &outputs[1]);
  }

  DEFINE_NAME(H2OAttentionWithScores)

 private:
  AttentionSettings settings_;
};

/// Builds the graph node; `keys` and `values` are their parts.
std::pair<mx::array, mx::array> attention_node(
    const mx::array& queries,
    const std::vector<mx::array>& keys,
    const std::vector<mx::array>& values,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    const AttentionSettings& settings,
    mx::Stream stream) {
  std::vector<mx::array> inputs{queries};
  inputs.insert(inputs.end(), keys.begin(), keys.end());
  inputs.insert(inputs.end(), values.begin(), values.end());
  const int batch = queries.shape(0), heads = queries.shape(1), tokens = queries.shape(2);
  metal::push_masks(inputs, queries, keys[0].shape(2), mask.values, sinks, stream);
  auto outputs = mx::array::make_arrays(
      {{batch, heads, tokens, settings.value_dim},
       {batch * heads * tokens, keys[0].shape(2)}},
      {queries.dtype(), mx::float32},
      std::make_shared<Placed<AttentionWithScores>>(stream, settings), inputs);
  return {outputs[0], outputs[1]};
}

/// Whether the Metal kernels can compute this attention; `dtype` is the dtype of keys and
/// values, or of their scales.
bool takes(
    const mx::array& queries,
    const mx::array& keys,
    mx::Dtype dtype,
    int key_dim,
    int value_dim) {
  const int group = queries.shape(1) / keys.shape(1), tokens = queries.shape(2);
  return tokens <= keys.shape(2) &&
         metal::supports({queries.dtype(), dtype, key_dim, value_dim, group, tokens});
}

/// Checks words, scales and biases of keys or values; returns their head dim.
int check_quantized(
    const char* name, const std::vector<mx::array>& parts, int bits, int group_size) {
  const auto& words = parts[0];
  if (words.ndim() != 4 || words.dtype() != mx::uint32) {
    refuse(
        quantized_function, name, " has words of shape ", words.shape(), " and dtype ",
        words.dtype(), "; expected uint32 [B, Hkv, N, D * bits / 32].");
  }
  const int64_t elements = int64_t(words.shape(3)) * 32 / bits;
  check_head_dim(quantized_function, name, elements);
  const int dim = int(elements);
  mx::Shape wanted{words.shape(0), words.shape(1), words.shape(2), dim / group_size};
  for (int i : {1, 2}) {
    if (parts[i].shape() != wanted || parts[i].dtype() != parts[1].dtype()) {
      refuse(
          quantized_function, name, " has ", i == 1 ? "scales" : "biases", " of shape ",
          parts[i].shape(), "; words of shape ", words.shape(), " at ", bits,
          " bits in groups of ", group_size, " need ", wanted, ".");
    }
    check_heads(quantized_function, name, parts[i], "[B, Hkv, N, D / group_size]");
  }
  if (dim % group_size != 0) {
    refuse(
        quantized_function, name, " has head dim ", dim,
        "; expected a multiple of "
        "group_size ",
        group_size, ".");
  }
  return dim;
}

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
  check_tokens_of(dense_function, keys, values, "[B, Hkv, N, Dk]", "[B, Hkv, N, Dv]");
  check_head_dim(dense_function, "keys", keys.shape(3));
  check_head_dim(dense_function, "values", values.shape(3));
  check_attention(
      dense_function, queries, keys.shape(0), keys.shape(1), keys.shape(2), keys.shape(3),
      mask, sinks);

  auto stream = mx::to_stream(s);
  if (on_gpu(stream)) {
    auto dtype = keys.dtype() == values.dtype() ? keys.dtype() : mx::bool_;
    if (!takes(queries, keys, dtype, keys.shape(3), values.shape(3))) {
      return fallback::scaled_dot_product_attention_with_scores(
          queries, keys, values, scale, mask, sinks, stream);
    }
  }
  AttentionSettings settings{scale,
                             mask.causal,
                             mask.values.has_value(),
                             sinks.has_value(),
                             keys.shape(3),
                             values.shape(3),
                             RowFormat{}};
  return attention_node(queries, {keys}, {values}, mask, sinks, settings, stream);
}

std::pair<mx::array, mx::array> scaled_dot_product_attention_quantized_with_scores(
    const mx::array& queries,
    const std::vector<mx::array>& keys,
    const std::vector<mx::array>& values,
    float scale,
    const RowFormat& format,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    mx::StreamOrDevice s) {
  validate(format);
  if (format.is_dense()) {
    refuse(quantized_function, "bits is 16; expected 4 or 8.");
  }
  if (keys.size() != 3 || values.size() != 3) {
    refuse(quantized_function, "keys and values must each be words, scales and biases.");
  }
  int key_dim = check_quantized("keys", keys, format.key_bits, format.group_size);
  int value_dim = check_quantized("values", values, format.value_bits, format.group_size);
  for (int axis = 0; axis < 3; ++axis) {
    if (keys[0].shape(axis) != values[0].shape(axis)) {
      refuse(
          quantized_function, "keys has words of shape ", keys[0].shape(), " and values ",
          values[0].shape(), "; batch, heads and rows must agree.");
    }
  }
  check_attention(
      quantized_function, queries, keys[0].shape(0), keys[0].shape(1), keys[0].shape(2),
      key_dim, mask, sinks);

  auto stream = mx::to_stream(s);
  auto dtype = keys[1].dtype() == values[1].dtype() ? keys[1].dtype() : mx::bool_;
  if (on_gpu(stream) && !takes(queries, keys[0], dtype, key_dim, value_dim)) {
    auto widened = [&](const std::vector<mx::array>& parts, int bits) {
      return mx::dequantize(
          parts[0], parts[1], parts[2], format.group_size, bits, "affine", std::nullopt,
          std::nullopt, stream);
    };
    return fallback::scaled_dot_product_attention_with_scores(
        queries, widened(keys, format.key_bits), widened(values, format.value_bits), scale,
        mask, sinks, stream);
  }
  AttentionSettings settings{
      scale,     mask.causal, mask.values.has_value(), sinks.has_value(), key_dim,
      value_dim, format};
  return attention_node(queries, keys, values, mask, sinks, settings, stream);
}

} // namespace h2o
