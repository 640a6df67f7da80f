#include <algorithm>

#include "checks.h"
#include "cpu_dispatch.h"
#include "fallback.h"
#include "metal/encode.h"
#include "mixed.h"
#include "mixed_attend_cpu.h"
#include "mlx/allocator.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "placement.h"
#include "row_layout.h"

namespace h2o {

namespace {

constexpr const char* function = "mixed_cache_attend";

using mixed_attend::Settings;
namespace input = mixed_attend::input;
namespace output = mixed_attend::output;

class MixedCacheAttend : public mx::Primitive {
 public:
  MixedCacheAttend(mx::Stream stream, Settings settings)
      : Primitive(stream), settings_(std::move(settings)) {
  }

  void eval_cpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    if (inputs[input::pool].strides(3) != 1 || inputs[input::ring].strides(3) != 1) {
      refuse(function, "pool and ring must be contiguous in their last dimension.");
    }
    for (auto& output : outputs) {
      output.set_data(mx::allocator::malloc(output.nbytes()));
    }
    cpu::dispatch(stream(), inputs, outputs, [settings = settings_](auto& in, auto& out) {
      mixed_attend::evaluate(settings, in, out);
    });
  }

  void eval_gpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    for (auto& output : outputs) {
      output.set_data(mx::allocator::malloc(output.nbytes()));
    }
    const auto& pool = inputs[input::pool];
    const auto& ring = inputs[input::ring];
    const MixedConfig& config = settings_.config;
    metal::Step step{ring, settings_.ring_layout.key, config.policy};
    step.dtype = config.dtype;
    step.offset = settings_.offset;
    step.first_row = config.pool_rows() + settings_.offset % config.ring_rows();
    step.rows = settings_.rows();
    step.chooses = settings_.seen() >= config.policy.max_size;
    step.has_ring = true;
    step.leaves = settings_.offset >= config.ring_rows();
    step.pool_used = pool_length(config, settings_.offset);
    step.pool_rows = settings_.pool_rows();
    step.pool_size = config.pool_rows();
    if (settings_.observed) {
      step.attention = metal::Attention{
          inputs[input::fixed],
          {metal::part_of(pool, settings_.pool_layout, settings_.pool_rows()),
           metal::part_of(ring, settings_.ring_layout, settings_.ring_rows())},
          pool.shape(1),
          settings_.ring_layout.key.dim,
          config.group_size,
          settings_.scale,
          settings_.causal};
      metal::take_masks(
          step, inputs.begin() + input::fixed + 1, settings_.masked, settings_.sunk);
    }
    metal::step(
        stream(), step, {inputs.begin() + input::scores, inputs.begin() + input::fixed},
        outputs);
  }

  DEFINE_NAME(H2OMixedCacheAttend)

 private:
  Settings settings_;
};

/// Whether our Metal kernels take it: single tokens, of head dims that MLX's kernels have.
bool takes(const std::optional<mx::array>& queries, const Settings& settings, int heads) {
  const auto dtype = settings.config.dtype;
  const int group = queries ? queries->shape(1) / heads : 1;
  return settings.single() &&
         metal::supports(
             {queries ? queries->dtype() : dtype, dtype, settings.ring_layout.key.dim,
              settings.ring_layout.value.dim, group, 1});
}

} // namespace

MixedAttended mixed_cache_attend(
    const std::optional<mx::array>& queries,
    const MixedRows& rows,
    const Ledger& ledger,
    int tokens,
    int offset,
    int key_dim,
    int value_dim,
    float scale,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    const MixedConfig& config,
    mx::StreamOrDevice s) {
  validate(config);
  auto layout = [&](const RowFormat& format) {
    return make_layout(function, format, key_dim, value_dim, config.dtype);
  };
  Settings settings{
      config,
      tokens,
      offset,
      scale,
      mask.causal,
      queries.has_value(),
      mask.values.has_value(),
      sinks.has_value(),
      layout(config.pool_format()),
      layout(config.ring_format())};
  if (tokens < 1 || offset < 0) {
    refuse(
        function, "tokens is ", tokens, " and offset ", offset,
        "; expected 1 and 0 or more.");
  }
  if (rows.pool.shape(2) < settings.pool_rows() ||
      rows.ring.shape(2) < settings.ring_rows()) {
    refuse(
        function, tokens, " tokens after ", offset, " need ", settings.pool_rows(), " and ",
        settings.ring_rows(), " rows; there are ", rows.pool.shape(2), " and ",
        rows.ring.shape(2), ". Write them first.");
  }
  const int batch = rows.pool.shape(0), heads = rows.pool.shape(1);
  check_ledger(function, ledger, batch, heads, config.policy.max_size, key_dim);
  if (queries) {
    check_new_queries(function, *queries, tokens);
    check_attention(
        function, *queries, batch, heads, settings.rows(), key_dim, mask, sinks);
  }
  auto stream = mx::to_stream(s);
  if (on_gpu(stream) && !takes(queries, settings, heads)) {
    return fallback::mixed_cache_attend(
        queries, rows, ledger, tokens, offset, key_dim, value_dim, scale, mask, sinks,
        config, stream);
  }
  std::vector<mx::array> inputs{rows.pool,        rows.ring,      ledger.scores,
                                ledger.positions, ledger.novelty, ledger.key_sum,
                                ledger.victim};
  std::vector<mx::Shape> shapes{
      ledger.scores.shape(), ledger.positions.shape(), ledger.novelty.shape(),
      ledger.key_sum.shape(), ledger.victim.shape()};
  std::vector<mx::Dtype> dtypes{
      mx::float32, mx::int32, mx::float32, mx::float32, mx::int32};
  if (queries) {
    inputs.push_back(*queries);
    metal::push_masks(inputs, *queries, settings.rows(), mask.values, sinks, stream);
    shapes.push_back({batch, queries->shape(1), tokens, value_dim});
    dtypes.push_back(queries->dtype());
  }
  if (!settings.single()) {
    const int pool = grown_capacity(
        std::min(rows.pool.shape(2), config.pool_rows()),
        std::max(1, pool_length(config, settings.seen())), config.pool_rows());
    const int ring =
        grown_capacity(0, ring_length(config, settings.seen()), config.ring_rows());
    shapes.push_back({batch, heads, pool, rows.pool.shape(3)});
    shapes.push_back({batch, heads, ring, rows.ring.shape(3)});
    dtypes.push_back(rows.pool.dtype());
    dtypes.push_back(rows.ring.dtype());
  }
  auto outputs = mx::array::make_arrays(
      shapes, dtypes, std::make_shared<Placed<MixedCacheAttend>>(stream, settings), inputs);
  MixedAttended result{
      std::nullopt,
      rows,
      {outputs[output::scores], outputs[output::positions], outputs[output::novelty],
       outputs[output::key_sum], outputs[output::victim]}};
  if (!settings.single()) {
    result.rows = {outputs[outputs.size() - 2], outputs.back()};
  }
  if (queries) {
    result.out = outputs[output::fixed];
  }
  return result;
}

} // namespace h2o
