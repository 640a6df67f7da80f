#include <algorithm>
#include <cstring>
#include <numeric>

#include "cache_step.h"
#include "checks.h"
#include "fallback.h"
#include "functions.h"
#include "metal/encode.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "policy.h"
#include "primitives.h"
#include "row_layout.h"

/// The parameters of cache_attend's primitive, the order of its inputs and outputs, and
/// its evaluation on the CPU.
namespace h2o::attend {

struct Settings {
  CacheStep step;
  Layouts layouts;
  mx::Dtype dtype; // of keys and values
  float scale;
  bool causal;
  bool has_queries;
  bool has_mask;
  bool has_sinks;
  bool reads_elsewhere;
};

/// The ledger's arrays come first in inputs and outputs. In the inputs, the pool follows, the
/// ring if there is one, queries, mask, sinks, and output and total of what was read
/// elsewhere. In the outputs, the output of attention follows if there are queries, then the
/// new buffers if rows are rearranged.
enum { scores, positions, victim, ledger_arrays, pool_input = ledger_arrays };

inline int newest_input(const Settings& settings) {
  return pool_input + (settings.layouts.ring ? 1 : 0);
}
inline int queries_input(const Settings& settings) {
  return newest_input(settings) + 1;
}

namespace {

int64_t row_stride(const mx::array& rows) {
  return rows.strides(2) * int64_t(rows.itemsize());
}

/// One evaluation of the primitive; the inputs and outputs outlive it. The working ledger
/// of a head lists the rows that attention reads: the pool's, then the ring's.
class Attend {
 public:
  Attend(
      const Settings& settings,
      std::vector<mx::array>& inputs,
      std::vector<mx::array>& outputs)
      : settings_(settings), step_(settings.step), in_(inputs), out_(outputs) {
  }

  void run() {
    const int room = std::max(step_.rows(), policy().max_size);
    scores_.resize(room);
    positions_.resize(room);
    scratch_.resize(room);
    for (int b = 0; b < pool().shape(0); ++b) {
      for (int h = 0; h < pool().shape(1); ++h) {
        cpu::HeadLedger ledger = enter_tokens(b, h);
        if (settings_.has_queries) {
          attend(b, h, ledger);
        }
        store(b, h, ledger);
      }
    }
  }

 private:
  const Settings& settings_;
  const CacheStep& step_;
  std::vector<mx::array>& in_;
  std::vector<mx::array>& out_;
  std::vector<float> scores_, scratch_, widened_, packing_;
  std::vector<int32_t> positions_;
  cpu::Workspace workspace_;

  const Policy& policy() const {
    return step_.config;
  }
  mx::array& pool() {
    return in_[pool_input];
  }
  /// The buffer that has the new tokens: the ring, or the pool if there is no ring.
  mx::array& newest() {
    return in_[newest_input(settings_)];
  }
  char* row_of(mx::array& rows, int b, int h, int64_t row) {
    int64_t start = b * rows.strides(0) + h * rows.strides(1);
    return rows.data<char>() + start * int64_t(rows.itemsize()) + row * row_stride(rows);
  }
  cpu::RowsPart part(const RowLayout& layout, mx::array& rows, int b, int h, int count) {
    const char* head = row_of(rows, b, h, 0);
    return {
        layout.key.view(head, row_stride(rows)), layout.value.view(head, row_stride(rows)),
        count};
  }

  /// Copies `count` entries of one array of the head from index `from` to index `to`.
  template <class T>
  void load(int which, int b, int h, int from, int count, std::vector<T>& into, int to) {
    const int64_t stride = in_[which].strides(2);
    const T* entries = cpu::head_of<T>(in_[which], b, h) + from * stride;
    if (stride == 1) {
      std::copy(entries, entries + count, into.begin() + to);
      return;
    }
    for (int n = 0; n < count; ++n) {
      into[to + n] = entries[n * stride];
    }
  }

  /// Copies entries of all arrays of the ledger.
  void load(int b, int h, int from, int count, int to) {
    load(scores, b, h, from, count, scores_, to);
    load(positions, b, h, from, count, positions_, to);
  }

  /// The working ledger of one head with the new tokens in it.
  cpu::HeadLedger enter_tokens(int b, int h) {
    const int pool_size = step_.config.pool_rows(), pool_used = step_.pool_used();
    const bool has_ring = step_.config.format.has_ring();
    const int old_victim = *cpu::head_of<int32_t>(in_[victim], b, h);
    int first = step_.first_row();
    if (first == over_victim) {
      first = std::clamp(old_victim, 0, pool_size - 1);
    }
    load(b, h, 0, step_.pool_length(step_.offset), 0);
    load(b, h, pool_size, step_.ring_length(step_.offset), pool_used);
    if (step_.leaves_ring()) {
      const int row = step_.pool_row_for_leaving(old_victim);
      if (row >= 0) {
        load(b, h, pool_size + first, 1, row);
      }
    }
    cpu::HeadLedger ledger{scores_.data(), positions_.data()};
    for (int t = 0; t < step_.tokens; ++t) {
      const int row = first + t + (has_ring ? pool_used : 0);
      ledger.scores[row] = -1.0f;
      ledger.positions[row] = step_.offset + t;
    }
    return ledger;
  }

  void attend(int b, int h, cpu::HeadLedger& ledger) {
    const auto& queries = in_[queries_input(settings_)];
    const Layouts& layouts = settings_.layouts;
    const int group = queries.shape(1) / pool().shape(1);
    cpu::AttentionShape shape{
        group,
        step_.tokens,
        step_.rows(),
        layouts.pool.key.dim,
        layouts.pool.value.dim,
        settings_.scale,
        settings_.causal};
    cpu::MaskView mask;
    if (settings_.has_mask) {
      mask = {
          in_[queries_input(settings_) + 1],
          {queries.shape(0), queries.shape(1), step_.tokens, shape.rows}};
    }
    std::vector<cpu::RowsPart> parts{part(layouts.pool, pool(), b, h, step_.pool_used())};
    if (layouts.ring) {
      parts.push_back(part(*layouts.ring, newest(), b, h, step_.ring_used()));
    }
    const mx::array* sinks = nullptr;
    if (settings_.has_sinks) {
      sinks = &in_[in_.size() - (settings_.reads_elsewhere ? 3 : 1)];
    }
    std::optional<cpu::ElsewhereView> elsewhere;
    if (settings_.reads_elsewhere) {
      elsewhere.emplace(cpu::ElsewhereView{in_[in_.size() - 2], in_.back()});
    }
    const int first_observed = step_.tokens - observation_window;
    cpu::attend_head(
        shape, queries, std::move(parts), mask, /* low_bias_hides */ true, sinks, elsewhere,
        b, h, out_[ledger_arrays], workspace_, [&](const cpu::QueryResult& query) {
          if (query.query >= first_observed) {
            cpu::observe(
                policy(), query, group, settings_.has_mask, ledger.scores, scratch_.data());
          }
        });
  }

  /// Fills the outputs of one head, including the row that the next token overwrites.
  void store(int b, int h, const cpu::HeadLedger& ledger) {
    const int size = policy().max_size;
    cpu::HeadLedger saved{
        cpu::head_of<float>(out_[scores], b, h),
        cpu::head_of<int32_t>(out_[positions], b, h)};
    std::fill(saved.scores, saved.scores + size, -1.0f);
    std::fill(saved.positions, saved.positions + size, -1);
    if (step_.rearranges()) {
      rearrange(b, h, ledger, saved);
    } else {
      save(ledger, 0, step_.pool_used(), saved, 0);
      save(ledger, step_.pool_used(), step_.ring_used(), saved, step_.config.pool_rows());
    }
    *cpu::head_of<int32_t>(out_[victim], b, h) =
        step_.chooses_victim()
            ? cpu::choose_victim(
                  policy(), saved, size, step_.seen() + 1 - policy().recent_budget,
                  scratch_.data())
            : -1;
  }

  static void save(
      const cpu::HeadLedger& from, int row, int count, cpu::HeadLedger& to, int entry) {
    std::copy_n(from.scores + row, count, to.scores + entry);
    std::copy_n(from.positions + row, count, to.positions + entry);
  }

  /// Drops the rows beyond C and copies the others to new buffers: the newest to their
  /// slots of the ring, if there is one, and the others to the pool.
  void rearrange(int b, int h, const cpu::HeadLedger& ledger, cpu::HeadLedger& saved) {
    const int count = step_.rows(), seen = step_.seen(), pool_used = step_.pool_used();
    const int slots = step_.config.ring_rows(), pool_size = step_.config.pool_rows();
    std::vector<int> kept(count);
    std::iota(kept.begin(), kept.end(), 0);
    if (count > policy().max_size) {
      kept = cpu::rows_to_keep(
          policy(), ledger, count, count - policy().max_size, seen - policy().recent_budget,
          scratch_.data());
    }
    const Layouts& layouts = settings_.layouts;
    auto& new_pool = out_[out_.size() - (layouts.ring ? 2 : 1)];
    auto& new_ring = out_.back();
    // Positions may come from a hostile file: no position is used as an index outside of
    // the buffers, and rows without a position are empty.
    const int pool_length = step_.pool_length(seen), ring_length = step_.ring_length(seen);
    int filled = 0;
    std::vector<bool> is_taken(ring_length);
    for (int row : kept) {
      const int position = ledger.positions[row];
      const bool is_recent =
          layouts.ring && position >= seen - ring_length && position < seen;
      const int target = is_recent ? position % slots : filled;
      if (is_recent) {
        is_taken[target] = true;
      } else if (filled++ >= pool_length) {
        continue;
      }
      const int entry = is_recent ? pool_size + target : target;
      save(ledger, row, 1, saved, entry);
      const bool was_pooled = row < pool_used;
      move_row(
          was_pooled ? layouts.pool : *layouts.ring,
          was_pooled ? row_of(pool(), b, h, row) : row_of(newest(), b, h, row - pool_used),
          is_recent ? *layouts.ring : layouts.pool,
          row_of(is_recent ? new_ring : new_pool, b, h, target), widened_, packing_);
    }
    for (int row = filled; row < pool_length; ++row) {
      std::memset(row_of(new_pool, b, h, row), 0, layouts.pool.bytes());
    }
    for (int slot = 0; slot < ring_length; ++slot) {
      if (!is_taken[slot]) {
        std::memset(row_of(new_ring, b, h, slot), 0, layouts.ring->bytes());
      }
    }
  }
};

} // namespace

} // namespace h2o::attend

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
    for (int i = attend::pool_input; i < attend::queries_input(settings_); ++i) {
      if (inputs[i].strides(3) != 1) {
        refuse(cache_attend_function, "rows must be contiguous in their last dimension.");
      }
    }
    allocate(outputs);
    cpu::dispatch(stream(), inputs, outputs, [settings = settings_](auto& in, auto& out) {
      attend::Attend(settings, in, out).run();
    });
  }

  void eval_gpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    allocate(outputs);
    const auto& [step, layouts, dtype, scale, causal, has_queries, has_mask, has_sinks, elsewhere] =
        settings_;
    const auto& pool = inputs[attend::pool_input];
    const auto& newest = inputs[attend::newest_input(settings_)];
    metal::LedgerUpdate update{step, dtype};
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
      if (has_mask) {
        update.mask = queries[1];
        update.attention->mask = queries[2];
      }
      if (has_sinks) {
        update.attention->sinks = inputs.back();
      }
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

/// Whether the Metal kernels can run this step. They do not run steps that read elsewhere,
/// long chunks, chunks whose rows are rearranged, or head dims that MLX's kernels lack.
bool kernels_take(
    const std::optional<mx::array>& queries, const Settings& settings, int kv_heads) {
  if (settings.reads_elsewhere) {
    return false;
  }
  const RowLayout& layout = settings.layouts.pool;
  const int group = queries ? queries->shape(1) / kv_heads : 1;
  return !settings.step.rearranges() &&
         metal::supports(
             {queries ? queries->dtype() : settings.dtype, settings.dtype, layout.key.dim,
              layout.value.dim, group, settings.step.tokens});
}

} // namespace

void check_attend(const AttendArguments& arguments, const CacheConfig& config) {
  const auto& [queries, rows, ledger, key_dim, tokens, offset, scale, mask, sinks, elsewhere] =
      arguments;
  const CacheStep step{config, offset, tokens};
  check_tokens(cache_attend_function, offset, tokens);
  check_rows_in_use(cache_attend_function, rows, step);
  if (key_dim < 1 || (config.format.is_dense() && key_dim >= rows.pool.shape(3))) {
    refuse(
        cache_attend_function, "key_dim is ", key_dim, "; expected less than the ",
        rows.pool.shape(3), " elements of a row.");
  }
  const int batch = rows.pool.shape(0), heads = rows.pool.shape(1);
  check_ledger(cache_attend_function, ledger, batch, heads, step.config.max_size);
  if (queries) {
    check_new_queries(cache_attend_function, *queries, tokens);
    check_attention(
        cache_attend_function, *queries, batch, heads, step.rows(), key_dim, mask, sinks);
  }
  if (elsewhere) {
    const auto& out = elsewhere->out.shape();
    const bool fits = queries && out.size() == 4 && out[0] == batch &&
                      out[1] == queries->shape(1) && 0 < out[2] && out[2] <= tokens &&
                      elsewhere->total.shape() == mx::Shape{batch, out[1], out[2]};
    if (!fits) {
      refuse(
          cache_attend_function, "elsewhere has shapes ", out, " and ",
          elsewhere->total.shape(), "; expected [B, Hq, a, Dv] and [B, Hq, a].");
    }
  }
}

Attended cache_attend(
    const AttendArguments& arguments, const CacheConfig& config, mx::StreamOrDevice s) {
  const auto& [queries, rows, ledger, key_dim, tokens, offset, scale, mask, sinks, elsewhere] =
      arguments;
  const CacheStep step{config, offset, tokens};
  const Settings settings{
      step,
      layouts_of(cache_attend_function, config.format, rows, key_dim),
      vectors_dtype(rows, config.format),
      scale,
      mask.causal,
      queries.has_value(),
      mask.values.has_value(),
      sinks.has_value(),
      elsewhere.has_value()};
  auto stream = mx::to_stream(s);
  const int batch = rows.pool.shape(0), heads = rows.pool.shape(1);
  if (on_gpu(stream) && !kernels_take(queries, settings, heads)) {
    return fallback::cache_attend(arguments, config, stream);
  }

  auto inputs = arrays_of(ledger);
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  for (int i = 0; i < attend::ledger_arrays; ++i) {
    shapes.push_back(inputs[i].shape());
    dtypes.push_back(inputs[i].dtype());
  }
  const auto buffers = arrays_of(rows);
  inputs.insert(inputs.end(), buffers.begin(), buffers.end());
  if (queries) {
    inputs.push_back(as_stored(*queries, config.format, stream));
    metal::push_masks(inputs, *queries, step.rows(), mask.values, sinks, stream);
    if (elsewhere) {
      inputs.push_back(mx::contiguous(elsewhere->out, false, stream));
      inputs.push_back(mx::contiguous(elsewhere->total, false, stream));
    }
    shapes.push_back({batch, queries->shape(1), tokens, settings.layouts.pool.value.dim});
    dtypes.push_back(queries->dtype());
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
      std::nullopt, rows, {outputs[scores], outputs[positions], outputs[victim]}};
  if (queries) {
    result.out = as_given(outputs[ledger_arrays], config.format, stream);
  }
  if (step.rearranges()) {
    result.rows = rows_from(outputs.begin() + kept_rows, outputs.end());
  }
  return result;
}

} // namespace h2o
