#include "cache_step.h"
#include "checks.h"
#include "cpu_attention.h"
#include "fallback.h"
#include "functions.h"
#include "metal/encode.h"
#include "mlx/primitives.h"
#include "primitives.h"
#include "row_layout.h"

namespace h2o {

namespace {

constexpr const char* full_attention_function = "full_attention";

/// inputs: queries, rows, then mask and sinks if present; output: out.
class FullAttention : public mx::Primitive {
 public:
  struct Settings {
    RowLayout layout;
    int rows; // in use
    float scale;
    bool causal;
    bool has_mask;
    bool has_sinks;
  };

  FullAttention(mx::Stream stream, Settings settings)
      : Primitive(stream), settings_(settings) {
  }

  void eval_cpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    outputs[0].set_data(allocated(outputs[0]));
    cpu::dispatch(stream(), inputs, outputs, [settings = settings_](auto& in, auto& out) {
      evaluate(settings, in, out[0]);
    });
  }

  void eval_gpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    outputs[0].set_data(allocated(outputs[0]));
    const auto& [layout, rows, scale, causal, has_mask, has_sinks] = settings_;
    metal::Attention attention{
        inputs[0],
        {metal::part_of(inputs[1], layout, rows)},
        inputs[1].shape(1),
        layout.key.dim,
        layout.key.group_size,
        scale,
        causal};
    if (has_mask) {
      attention.mask = inputs[3]; // the form for attention, see push_masks
    }
    if (has_sinks) {
      attention.sinks = inputs.back();
    }
    metal::attend(stream(), attention, outputs[0], nullptr);
  }

  DEFINE_NAME(H2OFullAttention)

 private:
  Settings settings_;

  static void evaluate(
      const Settings& settings, std::vector<mx::array>& inputs, mx::array& out) {
    const auto& queries = inputs[0];
    auto& rows = inputs[1];
    const RowLayout& layout = settings.layout;
    const int group = queries.shape(1) / rows.shape(1), tokens = queries.shape(2);
    const int64_t stride = rows.strides(2) * int64_t(rows.itemsize());
    cpu::AttentionShape shape{group,          tokens,           settings.rows,
                              layout.key.dim, layout.value.dim, settings.scale,
                              settings.causal};
    cpu::MaskView mask;
    if (settings.has_mask) {
      mask = {inputs[2], {queries.shape(0), queries.shape(1), tokens, settings.rows}};
    }
    const mx::array* sinks = settings.has_sinks ? &inputs.back() : nullptr;
    cpu::Workspace workspace;
    for (int b = 0; b < rows.shape(0); ++b) {
      for (int h = 0; h < rows.shape(1); ++h) {
        const int64_t start = b * rows.strides(0) + h * rows.strides(1);
        const char* head = rows.data<char>() + start * int64_t(rows.itemsize());
        cpu::attend_head(
            shape, queries,
            {{layout.key.view(head, stride), layout.value.view(head, stride),
              settings.rows}},
            mask, /* low_bias_hides */ true, sinks, std::nullopt, b, h, out, workspace,
            [](const cpu::QueryResult&) {});
      }
    }
  }
};

} // namespace

mx::array full_attention(
    const mx::array& queries,
    const mx::array& rows,
    int length,
    int key_dim,
    const RowFormat& format,
    float scale,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    mx::StreamOrDevice s) {
  const RowLayout layout =
      layouts_of(full_attention_function, format, {rows}, key_dim).pool;
  auto stream = mx::to_stream(s);
  const int tokens = queries.shape(2), group = queries.shape(1) / rows.shape(1);
  const metal::CallShape call{queries.dtype(), vectors_dtype({rows}, format),
                              key_dim,         layout.value.dim,
                              group,           tokens};
  if (on_gpu(stream) && !metal::supports(call)) {
    return fallback::full_attention(
        queries, rows, length, key_dim, format, scale, mask, sinks, stream);
  }
  std::vector<mx::array> inputs{as_stored(queries, format, stream), rows};
  metal::push_masks(inputs, queries, length, mask.values, sinks, stream);
  FullAttention::Settings settings{
      layout, length, scale, mask.causal, mask.values.has_value(), sinks.has_value()};
  mx::array out(
      {queries.shape(0), queries.shape(1), tokens, layout.value.dim}, queries.dtype(),
      std::make_shared<Placed<FullAttention>>(stream, settings), std::move(inputs));
  return as_given(out, format, stream);
}

} // namespace h2o
