#include <algorithm>

#include "allocated.h"
#include "cache_attend_cpu.h"
#include "checks.h"
#include "cpu_dispatch.h"
#include "fallback.h"
#include "functions.h"
#include "metal/encode.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "placement.h"
#include "rotation.h"
#include "row_layout.h"

namespace h2o {

namespace {

constexpr const char* cache_attend_function = "cache_attend";

using attend::Settings;

class CacheAttend : public mx::Primitive {
 public:
  CacheAttend(mx::Stream stream, Settings settings)
      : Primitive(stream), settings_(std::move(settings)) {
  }

  void eval_cpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    for (int i = attend::pool_input(settings_); i < attend::queries_input(settings_); ++i) {
      if (inputs[i].strides(3) != 1) {
        refuse(cache_attend_function, "rows must be contiguous in their last dimension.");
      }
    }
    allocate(outputs);
    cpu::dispatch(stream(), inputs, outputs, [settings = settings_](auto& in, auto& out) {
      attend::evaluate(settings, in, out);
    });
  }

  void eval_gpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    allocate(outputs);
    const auto& [step, layouts, dtype, scale, causal, has_queries, has_mask, has_sinks, has_held] =
        settings_;
    const auto& pool = inputs[attend::pool_input(settings_)];
    const auto& newest = inputs[attend::newest_input(settings_)];
    metal::LedgerUpdate update{step, newest, layouts.newest().key, dtype};
    if (has_held) {
      update.held = inputs[attend::held];
    }
    if (has_queries) {
      const auto queries = inputs.begin() + attend::queries_input(settings_);
      update.attention = metal::Attention{
          *queries,
          {metal::part_of(pool, layouts.pool, step.pool_used())},
          pool.shape(1),
          layouts.pool.key.dim,
          step.config.format.group_size,
          scale,
          causal};
      if (layouts.ring) {
        update.attention->parts.push_back(
            metal::part_of(newest, *layouts.ring, step.ring_used()));
      }
      metal::take_masks(update, queries + 1, has_mask, has_sinks);
    }
    metal::update_ledger(
        stream(), update, {inputs.begin(), inputs.begin() + attend::ledger_arrays},
        outputs);
  }

  DEFINE_NAME(H2OCacheAttend)

 private:
  Settings settings_;

  static void allocate(std::vector<mx::array>& outputs) {
    for (auto& output : outputs) {
      output.set_data(allocated(output));
    }
  }
};

void check(const AttendArguments& arguments, const CacheStep& step) {
  const auto& [queries, rows, ledger, tokens, offset, scale, mask, sinks] = arguments;
  check_tokens(cache_attend_function, offset, tokens, 1);
  check_rows_in_use(cache_attend_function, rows, step);
  if (ledger.key_sum.ndim() != 3 || ledger.key_sum.shape(2) < 1 ||
      (step.config.format.is_dense() && ledger.key_sum.shape(2) >= rows.pool.shape(3))) {
    refuse(
        cache_attend_function, "ledger.key_sum has shape ", ledger.key_sum.shape(),
        "; expected [B, Hkv, Dk] with Dk less than the ", rows.pool.shape(3),
        " elements of a row.");
  }
  const int batch = rows.pool.shape(0), heads = rows.pool.shape(1);
  const int key_dim = ledger.key_sum.shape(2);
  check_ledger(cache_attend_function, ledger, batch, heads, step.config.max_size, key_dim);
  if (queries) {
    check_new_queries(cache_attend_function, *queries, tokens);
    check_attention(
        cache_attend_function, *queries, batch, heads, step.rows(), key_dim, mask, sinks);
  }
}

/// Whether our Metal kernels take it: all but long chunks, those whose rows are rearranged,
/// and head dims that MLX's kernels lack.
bool kernels_take(
    const std::optional<mx::array>& queries, const Settings& settings, int kv_heads) {
  const RowLayout& layout = settings.layouts.pool;
  const int group = queries ? queries->shape(1) / kv_heads : 1;
  return !settings.step.rearranges() &&
         metal::supports(
             {queries ? queries->dtype() : settings.dtype, settings.dtype, layout.key.dim,
              layout.value.dim, group, settings.step.tokens});
}

} // namespace

Attended cache_attend(
    const AttendArguments& arguments, const CacheConfig& config, mx::StreamOrDevice s) {
  const auto& [queries, rows, ledger, tokens, offset, scale, mask, sinks] = arguments;
  const CacheStep step{config, offset, tokens};
  check(arguments, step);
  const Settings settings{
      step,
      layouts_of(cache_attend_function, config.format, rows, ledger.key_sum.shape(2)),
      vectors_dtype(rows, config.format),
      scale,
      mask.causal,
      queries.has_value(),
      mask.values.has_value(),
      sinks.has_value(),
      ledger.held.has_value()};
  auto stream = mx::to_stream(s);
  const int batch = rows.pool.shape(0), heads = rows.pool.shape(1);
  if (on_gpu(stream) && !kernels_take(queries, settings, heads)) {
    return fallback::cache_attend(arguments, config, stream);
  }

  std::vector<mx::array> inputs{
      ledger.scores, ledger.positions, ledger.novelty, ledger.key_sum, ledger.victim};
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  for (const auto& a : inputs) {
    shapes.push_back(a.shape());
    dtypes.push_back(a.dtype());
  }
  if (ledger.held) {
    inputs.push_back(*ledger.held);
  }
  inputs.push_back(rows.pool);
  if (rows.ring) {
    inputs.push_back(*rows.ring);
  }
  if (queries) {
    inputs.push_back(as_stored(*queries, config.format, stream));
    metal::push_masks(inputs, *queries, step.rows(), mask.values, sinks, stream);
    shapes.push_back({batch, queries->shape(1), tokens, settings.layouts.pool.value.dim});
    dtypes.push_back(queries->dtype());
  }
  const size_t kept_held = shapes.size();
  if (step.rearranges() && ledger.held) {
    shapes.push_back(ledger.held->shape());
    dtypes.push_back(mx::bool_);
  }
  const size_t kept_rows = shapes.size();
  if (step.rearranges()) {
    auto add = [&](const mx::array& old, int used, int most, int capacity) {
      capacity = grown_capacity(std::min(capacity, most), std::max(1, used), most);
      shapes.push_back({batch, heads, capacity, old.shape(3)});
      dtypes.push_back(old.dtype());
    };
    add(rows.pool, step.pool_length(step.seen()), config.pool_rows(), rows.pool.shape(2));
    if (rows.ring) {
      add(*rows.ring, step.ring_length(step.seen()), config.ring_rows(), 0);
    }
  }
  auto outputs = mx::array::make_arrays(
      std::move(shapes), dtypes, std::make_shared<Placed<CacheAttend>>(stream, settings),
      inputs);
  using namespace attend;
  Attended result{
      std::nullopt,
      rows,
      {outputs[scores], outputs[positions], outputs[novelty], outputs[key_sum],
       outputs[victim], ledger.held}};
  if (queries) {
    result.out = as_given(outputs[ledger_arrays], config.format, stream);
  }
  if (step.rearranges()) {
    if (ledger.held) {
      result.ledger.held = outputs[kept_held];
    }
    result.rows = rows_from(outputs.begin() + kept_rows, outputs.end());
  }
  return result;
}

} // namespace h2o
