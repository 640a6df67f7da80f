#include <algorithm>

#include "checks.h"
#include "cpu_dispatch.h"
#include "fallback.h"
#include "functions.h"
#include "metal/encode.h"
#include "mlx/allocator.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "placement.h"
#include "policy.h"
#include "row_layout.h"

namespace h2o {

namespace {

constexpr const char* function = "cache_attend";

struct Settings {
  CacheConfig config;
  int tokens;
  int offset; // tokens seen before
  int length; // rows in use before
  float scale;
  bool causal;
  bool observed; // there are queries
  bool masked;
  bool sunk;
  RowLayout layout;

  int rows_written() const {
    bool overwrote = tokens == 1 && length == config.max_size;
    return overwrote ? length : length + tokens;
  }
  int rows_kept() const {
    return std::min(rows_written(), config.max_size);
  }
  bool evicts() const {
    return rows_written() > config.max_size;
  }
};

/// Where each input and output stands; the optional ones follow the fixed ones.
namespace input {
enum { rows, scores, positions, novelty, key_sum, victim, fixed };
}
namespace output {
enum { scores, positions, novelty, key_sum, victim, fixed };
}

/// One evaluation of the primitive; the inputs and outputs outlive it.
class Attend {
 public:
  Attend(
      const Settings& settings,
      std::vector<mx::array>& inputs,
      std::vector<mx::array>& outputs)
      : settings_(settings), in_(inputs), out_(outputs) {
  }

  void run() {
    const int batch = rows().shape(0), heads = rows().shape(1);
    const int count = settings_.rows_written();
    const int room = std::max(count, settings_.config.max_size);
    scores_.resize(room);
    positions_.resize(room);
    novelty_.resize(room);
    scratch_.resize(std::max(room, key_dim()));
    for (int b = 0; b < batch; ++b) {
      for (int h = 0; h < heads; ++h) {
        cpu::HeadLedger ledger = enter_tokens(b, h);
        if (settings_.observed) {
          attend(b, h, ledger);
        }
        if (settings_.evicts()) {
          evict(b, h, ledger);
        }
        store(b, h, ledger);
      }
    }
  }

 private:
  const Settings& settings_;
  std::vector<mx::array>& in_;
  std::vector<mx::array>& out_;
  std::vector<float> scores_, novelty_, scratch_;
  std::vector<int32_t> positions_;
  cpu::Workspace workspace_;

  mx::array& rows() {
    return in_[input::rows];
  }
  int key_dim() {
    return in_[input::key_sum].shape(2);
  }
  /// One kind of vector of all rows of a head.
  cpu::RowsView vectors(const VectorLayout& layout, int b, int h) {
    const int64_t itemsize = int64_t(rows().itemsize());
    const char* head =
        rows().data<char>() + (b * rows().strides(0) + h * rows().strides(1)) * itemsize;
    return layout.view(head, rows().strides(2) * itemsize);
  }
  mx::array& attention_out() {
    return out_[output::fixed];
  }
  mx::array& kept_rows() {
    return out_.back();
  }

  /// The ledger of one head with the new tokens in it.
  cpu::HeadLedger enter_tokens(int b, int h) {
    const int old = settings_.length, max_size = settings_.config.max_size;
    auto load = [&](int which, auto& into) {
      using T = typename std::decay_t<decltype(into)>::value_type;
      const T* from = cpu::head_of<T>(in_[which], b, h);
      const int64_t step = in_[which].strides(2);
      if (step == 1) {
        std::copy(from, from + old, into.begin());
        return;
      }
      for (int n = 0; n < old; ++n) {
        into[n] = from[n * step];
      }
    };
    load(input::scores, scores_);
    load(input::positions, positions_);
    load(input::novelty, novelty_);
    float* key_sum = cpu::head_of<float>(out_[output::key_sum], b, h);
    const float* old_sum = cpu::head_of<float>(in_[input::key_sum], b, h);
    for (int d = 0; d < key_dim(); ++d) {
      key_sum[d] = old_sum[d * in_[input::key_sum].strides(2)];
    }

    cpu::HeadLedger ledger{scores_.data(), positions_.data(), novelty_.data(), key_sum};
    const cpu::RowsView keys = vectors(settings_.layout.key, b, h);
    for (int t = 0; t < settings_.tokens; ++t) {
      int row = old + t;
      if (settings_.rows_written() == old) { // one token over the victim
        row = std::clamp(*cpu::head_of<int32_t>(in_[input::victim], b, h), 0, max_size - 1);
      }
      cpu::enter_token(
          ledger, row, settings_.offset + t, cpu::row_at(keys, row), key_dim(),
          scratch_.data());
    }
    return ledger;
  }

  void attend(int b, int h, cpu::HeadLedger& ledger) {
    const auto& queries = in_[input::fixed];
    const int group = queries.shape(1) / rows().shape(1);
    cpu::AttentionShape shape{
        group,           settings_.tokens,           settings_.rows_written(),
        key_dim(),       settings_.layout.value.dim, settings_.scale,
        settings_.causal};
    cpu::MaskView mask;
    if (settings_.masked) {
      mask = {
          in_[input::fixed + 1],
          {queries.shape(0), queries.shape(1), settings_.tokens, shape.rows}};
    }
    const mx::array* sinks = settings_.sunk ? &in_.back() : nullptr;
    const int first_observed = settings_.tokens - settings_.config.observation_window;
    cpu::attend_head(
        shape, queries,
        {{vectors(settings_.layout.key, b, h), vectors(settings_.layout.value, b, h),
          shape.rows}},
        mask, /* hide_faint */ true, sinks, b, h, attention_out(), workspace_,
        [&](const cpu::QueryResult& query) {
          if (query.query >= first_observed) {
            cpu::observe(
                settings_.config, query, group, settings_.masked, ledger.scores,
                scratch_.data());
          }
        });
  }

  void evict(int b, int h, cpu::HeadLedger& ledger) {
    const int count = settings_.rows_written();
    const int recent_from =
        settings_.offset + settings_.tokens - settings_.config.recent_budget;
    auto kept = cpu::rows_to_keep(
        settings_.config, ledger, count, count - settings_.config.max_size, recent_from,
        scratch_.data());
    const size_t row_bytes = size_t(rows().shape(3)) * rows().itemsize();
    auto& target = kept_rows();
    char* to = target.data<char>() +
               (b * target.strides(0) + h * target.strides(1)) * int64_t(target.itemsize());
    for (size_t n = 0; n < kept.size(); ++n) {
      cpu::copy_vector(rows(), b, h, kept[n], to + n * row_bytes);
      ledger.scores[n] = ledger.scores[kept[n]];
      ledger.positions[n] = ledger.positions[kept[n]];
      ledger.novelty[n] = ledger.novelty[kept[n]];
    }
  }

  /// Fills the outputs of one head, with the row that the next token takes.
  void store(int b, int h, const cpu::HeadLedger& ledger) {
    const int kept = settings_.rows_kept(), max_size = settings_.config.max_size;
    auto save = [&](int which, const auto* from, auto empty) {
      auto* to = cpu::head_of<decltype(empty)>(out_[which], b, h);
      std::copy(from, from + kept, to);
      std::fill(to + kept, to + max_size, empty);
    };
    save(output::scores, ledger.scores, -1.0f);
    save(output::positions, ledger.positions, int32_t(-1));
    save(output::novelty, ledger.novelty, 0.0f);
    const int seen = settings_.offset + settings_.tokens;
    *cpu::head_of<int32_t>(out_[output::victim], b, h) =
        kept < max_size ? -1
                        : cpu::choose_victim(
                              settings_.config, ledger, kept,
                              seen + 1 - settings_.config.recent_budget, scratch_.data());
  }
};

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
      Attend(settings, in, out).run();
    });
  }

  void eval_gpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    for (auto& output : outputs) {
      output.set_data(mx::allocator::malloc(output.nbytes()));
    }
    const auto& rows = inputs[input::rows];
    const CacheConfig& config = settings_.config;
    const bool overwrote = settings_.rows_written() == settings_.length;
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
