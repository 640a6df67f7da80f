#include "recall.h"

#include <algorithm>
#include <cmath>

#include "cpu_attention.h"
#include "fallback.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"

namespace h2o {

/// The most lines of queries that read packed keys. More lines read the keys in float32, which
/// are then unpacked only once.
constexpr int few_lines = 8;

void RelevanceOfHeads::compute_logits(int batch, int head, int64_t stride) {
  const auto& [queries, keys, scale, mask, sinks] = asking_;
  const int asks = queries.shape(2), dim = queries.shape(3);
  const int group = queries.shape(1) / keys.shape(1), lines = group * asks;
  const int heads = keys.shape(1);
  queries_.resize(size_t(lines) * dim);
  for (int g = 0; g < group; ++g) {
    for (int l = 0; l < asks; ++l) {
      cpu::load_query(
          queries, batch, head * group + g, l, scale,
          &queries_[size_t(g * asks + l) * dim]);
    }
  }
  logits_.resize(size_t(lines) * stride);
  wide_.resize(size_t(segment_tokens) * dim);
  float* out = logits_.data();
  auto dot = [&](cpu::RowsView rows, int count) {
    cpu::kernels().dot_rows(queries_.data(), lines, rows, count, dim, out, stride);
    out += count;
  };
  for (size_t block = 0; block < archive_.blocks(); ++block) {
    const int count = archive_.count(block);
    if (lines <= few_lines) {
      dot(archive_.keys(block, batch * heads + head), count);
      continue;
    }
    cpu::kernels().to_float32(
        archive_.keys(block, batch * heads + head), count, dim, wide_.data(), dim);
    dot({wide_.data(), cpu::Element::float32, dim * int64_t(sizeof(float))}, count);
  }
  dot(cpu::rows_of(keys, batch, head, storage_), asks);

  const int64_t archived = stride - asks;
  cpu::MaskView values;
  if (mask.values) {
    values = {*mask.values, {queries.shape(0), queries.shape(1), asks, asks}};
  }
  for (int g = 0; g < group; ++g) {
    for (int l = 0; l < asks; ++l) {
      float* own = &logits_[size_t(g * asks + l) * stride + archived];
      if (values) {
        values.apply(batch, head * group + g, l, asks, /* low_bias_hides */ true, own);
      } else {
        std::fill(own + l + 1, own + asks, lowest);
      }
    }
  }
}

void RelevanceOfHeads::compute(int batch, int head, float* relevance) {
  const auto& sinks = asking_.sinks;
  const int asks = asking_.queries.shape(2);
  const int group = asking_.queries.shape(1) / asking_.keys.shape(1);
  const int archived = archive_.end() - archive_.first(), rows = archived + asks;
  compute_logits(batch, head, rows);
  most_.assign(rows, lowest);
  mean_.resize(archived);
  std::fill_n(relevance, archived, 0.0f);
  for (int l = 0; l < asks; ++l) {
    std::fill(mean_.begin(), mean_.end(), 0.0f);
    for (int g = 0; g < group; ++g) {
      float* logits = &logits_[size_t(g * asks + l) * rows];
      float most = cpu::kernels().hide_not_finite(logits, rows, most_.data());
      const float sink = sinks ? cpu::load_sink(*sinks, head * group + g) : lowest;
      most = std::max(most, sink);
      if (most == lowest) {
        continue; // this query sees no position
      }
      float sum = cpu::kernels().exp_shifted(logits, most, rows, logits);
      sum += sinks ? std::exp(sink - most) : 0.0f;
      cpu::kernels().add_scaled(
          logits, 1.0f / (sum * float(group)), archived, mean_.data());
    }
    for (int j = 0; j < archived; ++j) {
      relevance[j] = std::max(relevance[j], mean_[j]);
    }
  }
  for (int j = 0; j < archived; ++j) {
    relevance[j] = most_[j] == lowest ? -1.0f : relevance[j];
  }
}

namespace relevant {

/// The most bytes of logits at a time.
constexpr int64_t logits_bytes = 32 << 20;

/// Far below every real logit, and far above the logit of a hidden row.
constexpr float below_every_logit = -1e30f;

/// Logits [B, heads, Hq / Hkv * a, positions] of queries [.., Dk], which are scaled.
mx::array logits(
    const mx::array& queries, Archive& archive, int head, int last, mx::StreamOrDevice s) {
  const RowFormat& format = archive.format();
  const VectorLayout key = archive.layout().key;
  const int blocks = int(archive.blocks(s).size()) + archive.files().stored();
  const mx::array packed = archive.packed_keys(head, last, 0, blocks, s);
  if (format.is_dense()) {
    auto keys = mx::astype(packed, mx::float32, s);
    return mx::matmul(queries, mx::swapaxes(keys, 2, 3, s), s);
  }
  const int words = int(key.scales() / 4);
  auto both = sliced(packed, 3, words, packed.shape(3), s);
  both =
      mx::astype(mx::view(mx::contiguous(both, false, s), format.dtype, s), mx::float32, s);
  auto halves = mx::split(both, 2, 3, s);
  return mx::quantized_matmul(
      queries, sliced(packed, 3, 0, words, s), halves[0], halves[1], true, key.group_size,
      key.bits, "affine", s);
}

} // namespace relevant

mx::array relevance_in_operations(
    const Asking& asking, Archive& archive, mx::StreamOrDevice s) {
  const auto& [queries, keys, scale, mask, sinks] = asking;
  const int batch = queries.shape(0), asks = queries.shape(2), dim = queries.shape(3);
  const int kv_heads = keys.shape(1), group = queries.shape(1) / kv_heads;
  const int archived = archive.length() - archive.first(), rows = archived + asks;
  auto scaled = mx::multiply(mx::astype(queries, mx::float32, s), mx::array(scale), s);
  scaled = mx::reshape(scaled, {batch, kv_heads, group * asks, dim}, s);
  const Mask own_mask = mask.values ? mask : Mask{true};
  auto own = mx::reshape(
      fallback::masked_logits(queries, keys, scale, own_mask, asks, true, s),
      {batch, kv_heads, group * asks, asks}, s);
  const int64_t head_bytes = int64_t(batch) * group * asks * rows * 4;
  const int together = int(std::clamp<int64_t>(
      relevant::logits_bytes / std::max<int64_t>(1, head_bytes), 1, kv_heads));

  std::vector<mx::array> parts;
  for (int head = 0; head < kv_heads; head += together) {
    const int last = std::min(kv_heads, head + together);
    auto of_heads = [&](const mx::array& a) {
      return sliced(a, 1, head, last, s);
    };
    auto older = relevant::logits(of_heads(scaled), archive, head, last, s);
    // For a query that sees no row, all probability goes to a column behind the rows.
    auto behind = mx::array(relevant::below_every_logit);
    if (sinks) {
      behind = of_heads(
          mx::reshape(mx::astype(*sinks, mx::float32, s), {1, kv_heads, group, 1}, s));
    }
    behind = mx::reshape(
        mx::broadcast_to(behind, {batch, last - head, group, asks}, s),
        {batch, last - head, group * asks, 1}, s);
    auto all = mx::concatenate({older, of_heads(own), behind}, 3, s);
    auto finite = mx::isfinite(all, s);
    auto p = mx::softmax(mx::where(finite, all, mx::array(lowest), s), -1, true, s);
    const mx::Shape grouped{batch, last - head, group, asks, rows + 1};
    auto relevance =
        mx::max(mx::mean(mx::reshape(p, grouped, s), 2, false, s), 2, false, s);
    auto is_seen =
        mx::any(mx::reshape(finite, grouped, s), std::vector<int>{2, 3}, false, s);
    relevance = mx::where(is_seen, relevance, mx::array(-1.0f), s);
    parts.push_back(mx::contiguous(sliced(relevance, 2, 0, archived, s), false, s));
    mx::eval(parts.back()); // one group of heads after the other
  }
  return mx::concatenate(parts, 1, s);
}

} // namespace h2o
