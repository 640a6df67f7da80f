
#include "cache_attend_cpu.h"
#include "checks.h"
#include "cpu_dispatch.h"
#include "fallback.h"
#include "functions.h"
#include "metal/encode.h"
#include "mlx/allocator.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "placement.h"
#include "row_layout.h"

namespace h2o {

namespace {

constexpr const char* function = "cache_attend";

using attend::Settings;
namespace input = attend::input;
namespace output = attend::output;

class CacheAttend : public mx::Primitive {
 public:
  CacheAttend(mx::Stream stream, Settings settings)
      : Primitive(stream), settings_(std::move(settings)) {
  }

  void eval_cpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    if (inputs[input::rows].strides(3) != 1) {
      refuse(function, "rows must be contiguous in its last dimension.");
    }
    for (auto& output : outputs) {
      output.set_data(mx::allocator::malloc(output.nbytes()));
    }
    cpu::dispatch(stream(), inputs, outputs, [settings = settings_](auto& in, auto& out) {
      attend::evaluate(settings, in, out);
    });
  }

  void eval_gpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    for (auto& output : outputs) {
      output.set_data(mx::allocator::malloc(output.nbytes()));
    }
    const auto& rows = inputs[input::rows];
    const CacheConfig& config = settings_.config;
    const bool overwrote = config.overwrites(settings_.tokens, settings_.length);
    metal::Step step{rows, settings_.layout.key, config};
    step.dtype = config.format.is_dense() ? rows.dtype() : config.format.dtype;
    step.tokens = settings_.tokens;
    step.offset = settings_.offset;
    step.first_row = overwrote ? metal::over_victim : settings_.length;
    step.rows = settings_.rows_written();
    step.chooses = settings_.rows_kept() == config.max_size;
    if (settings_.observed) {
      step.attention = metal::Attention{
          inputs[input::fixed],
          {metal::part_of(rows, settings_.layout, step.rows)},
          rows.shape(1),
          settings_.layout.key.dim,
          config.format.group_size,
          settings_.scale,
          settings_.causal};
      metal::take_masks(
          step, inputs.begin() + input::fixed + 1, settings_.masked, settings_.sunk);
    }
    metal::step(
        stream(), step, {inputs.begin() + input::scores, inputs.begin() + input::fixed},
        outputs);
  }

  DEFINE_NAME(H2OCacheAttend)

 private:
  Settings settings_;
};

void check(
    const std::optional<mx::array>& queries,
    const mx::array& rows,
    const Ledger& ledger,
    const Settings& settings,
    const Mask& mask,
    const std::optional<mx::array>& sinks) {
  int batch = rows.shape(0), heads = rows.shape(1), size = settings.config.max_size;
  int key_dim = ledger.key_sum.shape(2);
  check_ledger(function, ledger, batch, heads, size, key_dim);
  if (settings.tokens < 1) {
    refuse(function, "tokens is ", settings.tokens, "; expected at least 1.");
  }
  if (settings.length < 0 || settings.length > size || settings.offset < settings.length) {
    refuse(
        function, "offset is ", settings.offset, " and length ", settings.length,
        "; expected 0 <= length <= max_size = ", size, " and length <= offset.");
  }
  if (settings.rows_written() > rows.shape(2)) {
    refuse(
        function, "length ", settings.length, " and ", settings.tokens,
        " tokens need more rows than the ", rows.shape(2), " there are. Write them first.");
  }
  if (queries) {
    check_new_queries(function, *queries, settings.tokens);
    check_attention(
        function, *queries, batch, heads, settings.rows_written(), key_dim, mask, sinks);
  }
}

/// Whether our Metal kernels take it: all but long chunks, those that overflow the cache,
/// and head dims that MLX's kernels lack.
bool takes(
    const std::optional<mx::array>& queries,
    const mx::array& rows,
    const Settings& settings) {
  const RowLayout& layout = settings.layout;
  const auto& format = settings.config.format;
  const auto dtype = format.is_dense() ? rows.dtype() : format.dtype;
  const int group = queries ? queries->shape(1) / rows.shape(1) : 1;
  return !settings.evicts() &&
         metal::supports(
             {queries ? queries->dtype() : dtype, dtype, layout.key.dim, layout.value.dim,
              group, settings.tokens});
}

} // namespace

Attended cache_attend(
    const std::optional<mx::array>& queries,
    const mx::array& rows,
    const Ledger& ledger,
    int tokens,
    int offset,
    int length,
    float scale,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    const CacheConfig& config,
    mx::StreamOrDevice s) {
  validate(config);
  auto dtype = config.format.is_dense() ? rows.dtype() : mx::uint32;
  if (rows.ndim() != 4 || rows.dtype() != dtype) {
    refuse(
        function, "rows has shape ", rows.shape(), " and dtype ", rows.dtype(),
        "; expected what cache_write returned with this format.");
  }
  if (config.format.is_dense()) {
    check_heads(function, "rows", rows, "[B, Hkv, capacity, Dk + Dv]");
  }
  if (ledger.key_sum.ndim() != 3 || ledger.key_sum.shape(2) < 1 ||
      (config.format.is_dense() && ledger.key_sum.shape(2) >= rows.shape(3))) {
    refuse(
        function, "ledger.key_sum has shape ", ledger.key_sum.shape(),
        "; expected [B, Hkv, Dk] with Dk below the ", rows.shape(3), " elements of a row.");
  }
  Settings settings{
      config,
      tokens,
      offset,
      length,
      scale,
      mask.causal,
      queries.has_value(),
      mask.values.has_value(),
      sinks.has_value(),
      layout_of(function, config.format, rows, ledger.key_sum.shape(2))};
  check(queries, rows, ledger, settings, mask, sinks);
  auto stream = mx::to_stream(s);
  if (on_gpu(stream) && !takes(queries, rows, settings)) {
    return fallback::cache_attend(
        queries, rows, ledger, tokens, offset, length, scale, mask, sinks, config, stream);
  }

  std::vector<mx::array> inputs{rows,           ledger.scores,  ledger.positions,
                                ledger.novelty, ledger.key_sum, ledger.victim};
  std::vector<mx::Shape> shapes{
      ledger.scores.shape(), ledger.positions.shape(), ledger.novelty.shape(),
      ledger.key_sum.shape(), ledger.victim.shape()};
  std::vector<mx::Dtype> dtypes{
      mx::float32, mx::int32, mx::float32, mx::float32, mx::int32};
  if (queries) {
    inputs.push_back(*queries);
    metal::push_masks(
        inputs, *queries, settings.rows_written(), mask.values, sinks, stream);
    shapes.push_back(
        {queries->shape(0), queries->shape(1), tokens, settings.layout.value.dim});
    dtypes.push_back(queries->dtype());
  }
  if (settings.evicts()) {
    shapes.push_back({rows.shape(0), rows.shape(1), config.max_size, rows.shape(3)});
    dtypes.push_back(rows.dtype());
  }
  auto outputs = mx::array::make_arrays(
      shapes, dtypes, std::make_shared<Placed<CacheAttend>>(stream, settings), inputs);
  Attended result{
      std::nullopt,
      settings.evicts() ? outputs.back() : rows,
      {outputs[output::scores], outputs[output::positions], outputs[output::novelty],
       outputs[output::key_sum], outputs[output::victim]}};
  if (queries) {
    result.out = outputs[output::fixed];
  }
  return result;
}

} // namespace h2o
