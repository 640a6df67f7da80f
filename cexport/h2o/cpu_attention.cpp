#include "cpu_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace h2o::cpu {

namespace {

/// Number of query heads that are processed together, so that each row is read once for
/// all.
constexpr int tile_heads = 16;

size_t element_size(Element element) {
  return element == Element::float32 ? 4 : 2;
}

const char* advance(const void* data, Element element, int64_t count) {
  return static_cast<const char*>(data) + count * int64_t(element_size(element));
}

/// Widens the rows to float32 once, if many queries read them.
RowsView widened(RowsView rows, int count, int dim, std::vector<float>& storage) {
  if (rows.packing.bits == 16 && rows.element == Element::float32) {
    return rows;
  }
  storage.resize(size_t(count) * dim);
  kernels().to_float32(rows, count, dim, storage.data(), dim);
  return {storage.data(), Element::float32, dim * int64_t(sizeof(float))};
}

/// Calls visit(part, first row, rows) for each part that contains some of the first
/// `count` rows.
template <class Visit>
void for_each_part(const std::vector<RowsPart>& parts, int count, Visit visit) {
  int start = 0;
  for (const auto& part : parts) {
    int rows = std::min(part.rows, count - start);
    if (rows > 0) {
      visit(part, start, rows);
    }
    start += part.rows;
  }
}

} // namespace

void load_query(
    const mx::array& queries, int batch, int head, int query, float scale, float* out) {
  int dim = queries.shape(3);
  Element element = element_of(queries.dtype());
  int64_t start =
      batch * queries.strides(0) + head * queries.strides(1) + query * queries.strides(2);
  const char* data = advance(queries.data<char>(), element, start);
  if (queries.strides(3) == 1) {
    kernels().to_float32({data, element, 0}, 1, dim, out, dim);
  } else {
    int64_t step = queries.strides(3) * int64_t(queries.itemsize());
    kernels().to_float32({data, element, step}, dim, 1, out, 1);
  }
  for (int d = 0; d < dim; ++d) {
    out[d] *= scale;
  }
}

float load_sink(const mx::array& sinks, int head) {
  Element element = element_of(sinks.dtype());
  RowsView view{advance(sinks.data<char>(), element, head * sinks.strides(0)), element, 1};
  float sink;
  kernels().to_float32(view, 1, 1, &sink, 1);
  return sink;
}

Element element_of(mx::Dtype dtype) {
  if (dtype == mx::float16) {
    return Element::float16;
  }
  return dtype == mx::bfloat16 ? Element::bfloat16 : Element::float32;
}

RowsView rows_of(const mx::array& a, int batch, int head, std::vector<float>& storage) {
  Element element = element_of(a.dtype());
  int64_t start = batch * a.strides(0) + head * a.strides(1);
  const char* data = advance(a.data<char>(), element, start);
  int count = a.shape(2), dim = a.shape(3);
  const int64_t itemsize = int64_t(a.itemsize());
  if (dim == 1 || a.strides(3) == 1) {
    return {data, element, a.strides(2) * itemsize};
  }
  storage.resize(size_t(count) * dim);
  for (int n = 0; n < count; ++n) {
    RowsView row{
        advance(data, element, n * a.strides(2)), element, a.strides(3) * itemsize};
    kernels().to_float32(row, dim, 1, &storage[size_t(n) * dim], 1);
  }
  return {storage.data(), Element::float32, dim * int64_t(sizeof(float))};
}

RowsView row_at(RowsView rows, int n) {
  auto moved = [n](const void* from, int64_t stride) -> const void* {
    return from ? static_cast<const char*>(from) + n * stride : nullptr;
  };
  rows.data = moved(rows.data, rows.stride);
  rows.packing.scales = moved(rows.packing.scales, rows.packing.scale_stride);
  rows.packing.biases = moved(rows.packing.biases, rows.packing.bias_stride);
  return rows;
}

void copy_vector(const mx::array& a, int batch, int head, int row, char* to) {
  const int dim = a.shape(3);
  const int64_t itemsize = int64_t(a.itemsize());
  const char* from =
      a.data<char>() +
      (batch * a.strides(0) + head * a.strides(1) + row * a.strides(2)) * itemsize;
  if (dim == 1 || a.strides(3) == 1) {
    std::memcpy(to, from, dim * itemsize);
    return;
  }
  for (int d = 0; d < dim; ++d) {
    std::memcpy(to + d * itemsize, from + d * a.strides(3) * itemsize, itemsize);
  }
}

MaskView::MaskView(const mx::array& mask, const mx::Shape& full_shape)
    : data_(mask.data<char>()),
      boolean_(mask.dtype() == mx::bool_),
      element_(element_of(mask.dtype())),
      hiding_bias_(mask.dtype() == mx::float16 ? -32752.0f : -1e9f) {
  int missing = 4 - int(mask.ndim());
  for (int axis = missing; axis < 4; ++axis) {
    bool broadcast = mask.shape(axis - missing) == 1 && full_shape[axis] != 1;
    strides_[axis] = broadcast ? 0 : mask.strides(axis - missing);
  }
}

void MaskView::apply(
    int batch, int head, int query, int count, bool low_bias_hides, float* logits) const {
  int64_t start = batch * strides_[0] + head * strides_[1] + query * strides_[2];
  int64_t step = strides_[3];
  if (boolean_) {
    const bool* seen = static_cast<const bool*>(data_) + start;
    for (int n = 0; n < count; ++n) {
      logits[n] = seen[n * step] ? logits[n] : lowest;
    }
    return;
  }
  std::vector<float> bias(count);
  const RowsView values{
      advance(data_, element_, start), element_, step * int64_t(element_size(element_))};
  if (step == 1) {
    kernels().to_float32(values, 1, count, bias.data(), count);
  } else {
    kernels().to_float32(values, count, 1, bias.data(), 1);
  }
  for (int n = 0; n < count; ++n) {
    bool hidden =
        (low_bias_hides && bias[n] <= hiding_bias_) || logits[n] + bias[n] <= lowest;
    logits[n] = hidden ? lowest : logits[n] + bias[n];
  }
}

void attend_head(
    const AttentionShape& shape,
    const mx::array& queries,
    std::vector<RowsPart> parts,
    const MaskView& mask,
    bool low_bias_hides,
    const mx::array* sinks,
    const std::optional<ElsewhereView>& elsewhere,
    int batch,
    int head,
    mx::array& out,
    Workspace& workspace,
    const std::function<void(const QueryResult&)>& observe) {
  const int group = shape.group;
  const int tile = std::clamp(tile_heads / group, 1, shape.queries);
  const int64_t stride = shape.rows;
  auto& wide = workspace.wide;
  auto& query = workspace.query;
  auto& logits = workspace.logits;
  auto& weights = workspace.weights;
  auto& weighted_sums = workspace.weighted_sums;
  auto& normalizers = workspace.normalizers;
  wide.resize(2 * parts.size());
  if (shape.queries > 2 * tile) {
    for (size_t i = 0; i < parts.size(); ++i) {
      auto& part = parts[i];
      part.keys = widened(part.keys, part.rows, shape.key_dim, wide[2 * i]);
      part.values = widened(part.values, part.rows, shape.value_dim, wide[2 * i + 1]);
    }
  }
  query.resize(size_t(tile) * group * shape.key_dim);
  logits.resize(size_t(tile) * group * stride);
  weights.resize(logits.size());
  weighted_sums.resize(size_t(tile) * group * shape.value_dim);
  normalizers.resize(size_t(tile) * group);
  std::vector<float> away_weights(normalizers.size()); // of what was read elsewhere
  const Element out_element = element_of(out.dtype());
  // The index of a query in what was read elsewhere; negative if it read nothing there.
  auto elsewhere_index = [&](int g, int query) -> int64_t {
    const int reading = elsewhere ? elsewhere->total.shape(2) : 0;
    const int at = query - (shape.queries - reading);
    const int64_t line = int64_t(batch) * out.shape(1) + head * group + g;
    return at < 0 ? -1 : line * reading + at;
  };

  for (int first = 0; first < shape.queries; first += tile) {
    const int count = std::min(tile, shape.queries - first);
    auto visible_rows = [&](int l) {
      return shape.causal ? shape.rows - shape.queries + l + 1 : shape.rows;
    };
    const int tile_rows = visible_rows(first + count - 1);
    for (int l = 0; l < count; ++l) {
      for (int g = 0; g < group; ++g) {
        load_query(
            queries, batch, head * group + g, first + l, shape.scale,
            &query[size_t(l * group + g) * shape.key_dim]);
      }
    }
    for_each_part(parts, tile_rows, [&](const RowsPart& part, int start, int rows) {
      kernels().dot_rows(
          query.data(), count * group, part.keys, rows, shape.key_dim,
          logits.data() + start, stride);
    });
    for (int l = 0; l < count; ++l) {
      const int rows = visible_rows(first + l);
      for (int g = 0; g < group; ++g) {
        const int slot = l * group + g;
        float* row_logits = &logits[slot * stride];
        float* row_weights = &weights[slot * stride];
        if (mask) {
          mask.apply(batch, head * group + g, first + l, rows, low_bias_hides, row_logits);
        }
        std::fill(row_logits + rows, row_logits + tile_rows, lowest);
        float most = kernels().largest(row_logits, rows);
        float sink = sinks ? load_sink(*sinks, head * group + g) : lowest;
        most = std::max(most, sink);
        const int64_t away = elsewhere_index(g, first + l);
        const float total = away < 0 ? -infinity : elsewhere->total.data<float>()[away];
        most = std::max(most, total);
        float sum = 0.0f;
        bool sees_nothing =
            most == lowest &&
            std::all_of(row_logits, row_logits + rows, [](float x) { return x == lowest; });
        if (sees_nothing) {
          std::fill(row_weights, row_weights + tile_rows, 0.0f);
        } else {
          sum = kernels().exp_shifted(row_logits, most, rows, row_weights);
          std::fill(row_weights + rows, row_weights + tile_rows, 0.0f);
          sum += sinks ? std::exp(sink - most) : 0.0f;
          sum += std::exp(total - most);
        }
        normalizers[slot] = sum == 0.0f ? 0.0f : 1.0f / sum;
        away_weights[slot] = std::exp(total - most) * normalizers[slot];
      }
    }
    for_each_part(parts, tile_rows, [&](const RowsPart& part, int start, int rows) {
      kernels().mix_rows(
          weights.data() + start, count * group, stride, part.values, rows, shape.value_dim,
          start > 0, weighted_sums.data());
    });
    for (int l = 0; l < count; ++l) {
      for (int g = 0; g < group; ++g) {
        const int slot = l * group + g;
        float* vector = &weighted_sums[size_t(slot) * shape.value_dim];
        for (int d = 0; d < shape.value_dim; ++d) {
          vector[d] *= normalizers[slot];
        }
        if (away_weights[slot] > 0.0f) {
          const int64_t away = elsewhere_index(g, first + l) * shape.value_dim;
          kernels().add_scaled(
              elsewhere->out.data<float>() + away, away_weights[slot], shape.value_dim,
              vector);
        }
        int64_t start =
            ((int64_t(batch) * out.shape(1) + head * group + g) * shape.queries + first +
             l) *
            shape.value_dim;
        kernels().from_float32(
            vector, shape.value_dim, out_element,
            const_cast<char*>(advance(out.data<char>(), out_element, start)));
      }
      observe(
          {first + l, visible_rows(first + l), &logits[l * group * stride],
           &weights[l * group * stride], &normalizers[l * group], stride});
    }
  }
}

} // namespace h2o::cpu
