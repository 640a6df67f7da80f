#include "mixed_attend_cpu.h"

#include <numeric>

#include "cpu_dispatch.h"
#include "policy.h"

namespace h2o::mixed_attend {

namespace {

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
      moved_to = pool_row_for_leaving(
          settings_.config, settings_.offset,
          *cpu::head_of<int32_t>(in_[input::victim], b, h));
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
          settings_.ring_layout.key.dim, settings_.config.policy.novelty_margin,
          scratch_.data());
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

} // namespace

void evaluate(
    const Settings& settings,
    std::vector<mx::array>& inputs,
    std::vector<mx::array>& outputs) {
  MixedAttend(settings, inputs, outputs).run();
}

} // namespace h2o::mixed_attend
