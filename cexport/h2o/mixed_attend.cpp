#include <algorithm>
#include <numeric>

#include "checks.h"
#include "cpu_dispatch.h"
#include "fallback.h"
#include "metal/encode.h"
#include "mixed.h"
#include "mlx/allocator.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "placement.h"
#include "policy.h"
#include "row_layout.h"

namespace h2o {

namespace {

constexpr const char* function = "mixed_cache_attend";

struct Settings {
  MixedConfig config;
  int tokens;
  int offset; // tokens seen before
  float scale;
  bool causal;
  bool observed; // there are queries
  bool masked;
  bool sunk;
  RowLayout pool_layout;
  RowLayout ring_layout;

  bool single() const {
    return tokens == 1;
  }
  int seen() const {
    return offset + tokens;
  }
  /// Rows that the newest tokens attend to, in the pool and in the ring.
  int pool_rows() const {
    return pool_length(config, single() ? seen() : offset);
  }
  int ring_rows() const {
    return single() ? ring_length(config, seen()) : ring_length(config, offset) + tokens;
  }
  int rows() const {
    return pool_rows() + ring_rows();
  }
};

namespace input {
enum { pool, ring, scores, positions, novelty, key_sum, victim, fixed };
}
namespace output {
enum { scores, positions, novelty, key_sum, victim, fixed };
}

char* rows_of_head(mx::array& rows, int b, int h) {
  int64_t start = b * rows.strides(0) + h * rows.strides(1);
  return rows.data<char>() + start * int64_t(rows.itemsize());
}

int64_t row_stride(const mx::array& rows) {
  return rows.strides(2) * int64_t(rows.itemsize());
}

/// One evaluation of the primitive. The working ledger of a head lists the pool's rows,
/// then the ring's slots, then, in a chunk, the new tokens.
class MixedAttend {
 public:
  MixedAttend(
      const Settings& settings,
      std::vector<mx::array>& inputs,
      std::vector<mx::array>& outputs)
      : settings_(settings), in_(inputs), out_(outputs) {
  }

  void run() {
    const int room = settings_.rows();
    scores_.resize(room);
    positions_.resize(room);
    novelty_.resize(room);
    scratch_.resize(std::max(room, settings_.ring_layout.key.dim));
    for (int b = 0; b < in_[input::pool].shape(0); ++b) {
      for (int h = 0; h < in_[input::pool].shape(1); ++h) {
        cpu::HeadLedger ledger = enter_tokens(b, h);
        if (settings_.observed) {
          attend(b, h, ledger);
        }
        auto places =
            settings_.single() ? places_as_they_are() : settle_chunk(b, h, ledger);
        store(b, h, ledger, places);
      }
    }
  }

 private:
  /// A row of the working ledger and the ledger's row that it is saved to.
  struct Place {
    int row;
    int saved;
  };

  const Settings& settings_;
  std::vector<mx::array>& in_;
  std::vector<mx::array>& out_;
  std::vector<float> scores_, novelty_, scratch_, widened_, packing_;
  std::vector<int32_t> positions_;
  cpu::Workspace workspace_;

  int pool_capacity() const {
    return settings_.config.pool_rows();
  }
  int slots() const {
    return settings_.config.ring_rows();
  }

  cpu::HeadLedger enter_tokens(int b, int h) {
    const int pool = settings_.pool_rows(), ring = settings_.ring_rows();
    const int newest_slot = settings_.offset % slots();
    const bool leaves = settings_.single() && settings_.offset >= slots();
    int moved_to = -1;
    if (leaves) {
      const int filled = pool_length(settings_.config, settings_.offset);
      const int victim = *cpu::head_of<int32_t>(in_[input::victim], b, h);
      moved_to = filled < pool_capacity()   ? filled
                 : victim < pool_capacity() ? std::max(victim, 0)
                                            : -1;
    }
    const int old_ring = ring_length(settings_.config, settings_.offset);
    for (int n = 0; n < pool + std::min(ring, old_ring); ++n) {
      int from = n < pool ? n : pool_capacity() + n - pool;
      if (n == moved_to) {
        from = pool_capacity() + newest_slot;
      }
      auto entry = [&](int which, auto* into) {
        using T = std::remove_pointer_t<decltype(into)>;
        into[n] = cpu::head_of<T>(in_[which], b, h)[from * in_[which].strides(2)];
      };
      entry(input::scores, scores_.data());
      entry(input::positions, positions_.data());
      entry(input::novelty, novelty_.data());
    }
    float* key_sum = cpu::head_of<float>(out_[output::key_sum], b, h);
    const float* old_sum = cpu::head_of<float>(in_[input::key_sum], b, h);
    for (int d = 0; d < settings_.ring_layout.key.dim; ++d) {
      key_sum[d] = old_sum[d * in_[input::key_sum].strides(2)];
    }
    cpu::HeadLedger ledger{scores_.data(), positions_.data(), novelty_.data(), key_sum};
    auto keys = settings_.ring_layout.key.view(
        rows_of_head(in_[input::ring], b, h), row_stride(in_[input::ring]));
    const int first = settings_.single() ? newest_slot : old_ring;
    for (int t = 0; t < settings_.tokens; ++t) {
      cpu::enter_token(
          ledger, pool + first + t, settings_.offset + t, cpu::row_at(keys, first + t),
          settings_.ring_layout.key.dim, scratch_.data());
    }
    return ledger;
  }

  void attend(int b, int h, cpu::HeadLedger& ledger) {
    const auto& queries = in_[input::fixed];
    const int group = queries.shape(1) / in_[input::pool].shape(1);
    cpu::AttentionShape shape{
        group,
        settings_.tokens,
        settings_.rows(),
        settings_.ring_layout.key.dim,
        settings_.ring_layout.value.dim,
        settings_.scale,
        settings_.causal};
    cpu::MaskView mask;
    if (settings_.masked) {
      mask = {
          in_[input::fixed + 1],
          {queries.shape(0), queries.shape(1), settings_.tokens, shape.rows}};
    }
    const mx::array* sinks = settings_.sunk ? &in_.back() : nullptr;
    auto part = [&](const RowLayout& layout, mx::array& rows, int count) {
      const char* head = rows_of_head(rows, b, h);
      return cpu::RowsPart{
          layout.key.view(head, row_stride(rows)),
          layout.value.view(head, row_stride(rows)), count};
    };
    const int first_observed =
        settings_.tokens - settings_.config.policy.observation_window;
    cpu::attend_head(
        shape, queries,
        {part(settings_.pool_layout, in_[input::pool], settings_.pool_rows()),
         part(settings_.ring_layout, in_[input::ring], settings_.ring_rows())},
        mask, /* hide_faint */ true, sinks, b, h, out_[output::fixed], workspace_,
        [&](const cpu::QueryResult& query) {
          if (query.query >= first_observed) {
            cpu::observe(
                settings_.config.policy, query, group, settings_.masked, ledger.scores,
                scratch_.data());
          }
        });
  }

  std::vector<Place> places_as_they_are() const {
    std::vector<Place> places(settings_.rows());
    for (int n = 0; n < settings_.rows(); ++n) {
      bool pooled = n < settings_.pool_rows();
      places[n] = {n, pooled ? n : pool_capacity() + n - settings_.pool_rows()};
    }
    return places;
  }

  /// Drops what a chunk has too much, sends all but the newest to the pool and these to
  /// their slots, in new buffers.
  std::vector<Place> settle_chunk(int b, int h, const cpu::HeadLedger& ledger) {
    const CacheConfig& policy = settings_.config.policy;
    const int count = settings_.rows(), seen = settings_.seen();
    std::vector<int> kept(count);
    std::iota(kept.begin(), kept.end(), 0);
    if (count > policy.max_size) {
      kept = cpu::rows_to_keep(
          policy, ledger, count, count - policy.max_size, seen - policy.recent_budget,
          scratch_.data());
    }
    auto& old_pool = in_[input::pool];
    auto& old_ring = in_[input::ring];
    auto& pool = out_[out_.size() - 2];
    auto& ring = out_.back();
    std::vector<Place> places;
    int filled = 0;
    for (int row : kept) {
      const bool recent = ledger.positions[row] >= seen - slots();
      const int target = recent ? ledger.positions[row] % slots() : filled++;
      places.push_back({row, recent ? pool_capacity() + target : target});
      const bool pooled = row < settings_.pool_rows();
      const char* from = pooled ? rows_of_head(old_pool, b, h) + row * row_stride(old_pool)
                                : rows_of_head(old_ring, b, h) +
                                      (row - settings_.pool_rows()) * row_stride(old_ring);
      char* to = recent ? rows_of_head(ring, b, h) + target * row_stride(ring)
                        : rows_of_head(pool, b, h) + target * row_stride(pool);
      move_row(
          pooled ? settings_.pool_layout : settings_.ring_layout, from,
          recent ? settings_.ring_layout : settings_.pool_layout, to, widened_, packing_);
    }
    return places;
  }

  void store(
      int b, int h, const cpu::HeadLedger& ledger, const std::vector<Place>& places) {
    const int size = settings_.config.policy.max_size;
    auto* scores = cpu::head_of<float>(out_[output::scores], b, h);
    auto* positions = cpu::head_of<int32_t>(out_[output::positions], b, h);
    auto* novelty = cpu::head_of<float>(out_[output::novelty], b, h);
    std::fill(scores, scores + size, -1.0f);
    std::fill(positions, positions + size, -1);
    std::fill(novelty, novelty + size, 0.0f);
    for (auto [row, saved] : places) {
      scores[saved] = ledger.scores[row];
      positions[saved] = ledger.positions[row];
      novelty[saved] = ledger.novelty[row];
    }
    int32_t victim = -1;
    if (settings_.seen() >= size) {
      cpu::HeadLedger saved{scores, positions, novelty, ledger.key_sum};
      victim = cpu::choose_victim(
          settings_.config.policy, saved, size,
          settings_.seen() + 1 - settings_.config.policy.recent_budget, scratch_.data());
    }
    *cpu::head_of<int32_t>(out_[output::victim], b, h) = victim;
  }
};

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
      MixedAttend(settings, in, out).run();
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
