#include "cache_attend_cpu.h"

#include "cpu_dispatch.h"
#include "policy.h"

namespace h2o::attend {

namespace {

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
      if (settings_.config.overwrites(settings_.tokens, old)) {
        row = std::clamp(*cpu::head_of<int32_t>(in_[input::victim], b, h), 0, max_size - 1);
      }
      cpu::enter_token(
          ledger, row, settings_.offset + t, cpu::row_at(keys, row), key_dim(),
          settings_.config.novelty_margin, scratch_.data());
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

} // namespace

void evaluate(
    const Settings& settings,
    std::vector<mx::array>& inputs,
    std::vector<mx::array>& outputs) {
  Attend(settings, inputs, outputs).run();
}

} // namespace h2o::attend
