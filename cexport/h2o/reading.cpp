#include "reading.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu_attention.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "mlx/transforms.h"
#include "primitives.h"

namespace h2o {

namespace readings {

/// The most bytes of logits, keys and values of one tile; a tile has at least one
/// segment.
constexpr int64_t tile_bytes = 8 << 20;
/// The most queries of a KV head whose logits with a tile are in memory at once.
constexpr int block_queries = 256;

int group_of(const Reading& reading, const Archive& archive) {
  return reading.queries.shape(1) / archive.heads().kv_heads;
}

/// The queries times the scale, float32 [B, Hkv, G * a, Dk].
mx::array scaled_queries(
    const Reading& reading, const Archive& archive, mx::StreamOrDevice s) {
  const auto& shape = reading.queries.shape();
  auto wide = mx::multiply(
      mx::astype(reading.queries, mx::float32, s), mx::array(reading.scale), s);
  const int lines = group_of(reading, archive) * shape[2];
  return mx::reshape(wide, {shape[0], archive.heads().kv_heads, lines, shape[3]}, s);
}

/// What is added to the logits of the n positions from the archive's first to the end, float32
/// [B, Hkv, 1, n]: -infinity for those in the head's rows, which hides them, else 0.
mx::array bias_of_kept(
    const Reading& reading, const Archive& archive, mx::StreamOrDevice s) {
  const int first = archive.first(), count = reading.end - first;
  const auto& kept = reading.kept;
  auto inside = mx::logical_and(
      mx::greater_equal(kept, mx::array(first), s),
      mx::less(kept, mx::array(reading.end), s), s);
  auto column =
      mx::where(inside, mx::subtract(kept, mx::array(first), s), mx::array(count), s);
  auto bias = mx::zeros({kept.shape(0), kept.shape(1), count + 1}, mx::float32, s);
  auto hiding = mx::full(column.shape(), -infinity, mx::float32, s);
  bias = mx::put_along_axis(bias, column, hiding, 2, s);
  return mx::expand_dims(sliced(bias, 2, 0, count, s), 2, s);
}

mx::array is_finite(const mx::array& a, mx::StreamOrDevice s) {
  return mx::less(mx::abs(a, s), mx::array(infinity), s);
}

/// Replaces logits by their softmax, without those that are not finite, and returns the logarithm
/// of the sum of exp; zeros and -infinity if no logit is finite.
float softmax(float* logits, int count) {
  const auto& kernels = cpu::kernels();
  const float largest = kernels.hide_not_finite(logits, count);
  if (largest == lowest) {
    std::fill(logits, logits + count, 0.0f);
    return -infinity;
  }
  const float sum = kernels.exp_shifted(logits, largest, count, logits);
  for (int n = 0; n < count; ++n) {
    logits[n] /= sum;
  }
  return largest + std::log(sum);
}

/// Keys and values in float32 [B, Hkv, n, D], and what is added to the logits, [B, Hkv, 1, n].
struct Tile {
  mx::array keys, values, bias;
};

/// Hides keys that are not finite. NaN and infinities become 0, because 0 times them is NaN.
Tile finite(const Tile& tile, mx::StreamOrDevice s) {
  const mx::array zero(0.0f);
  const auto keys = is_finite(tile.keys, s);
  const auto is_seen = mx::expand_dims(mx::all(keys, 3, false, s), 2, s);
  return {
      mx::where(keys, tile.keys, zero, s),
      mx::where(is_finite(tile.values, s), tile.values, zero, s),
      mx::where(is_seen, tile.bias, mx::array(-infinity), s)};
}

/// `read` with the shapes of the queries before their heads were grouped.
Elsewhere ungrouped(const Elsewhere& read, const Reading& reading, mx::StreamOrDevice s) {
  auto shape = reading.queries.shape();
  shape[3] = read.out.shape(3);
  auto out = mx::reshape(read.out, shape, s);
  shape.pop_back();
  return {out, mx::reshape(read.total, shape, s)};
}

/// The keys and values of rows in float32.
std::pair<mx::array, mx::array> widened(
    const mx::array& rows,
    const RowLayout& layout,
    const RowFormat& format,
    mx::StreamOrDevice s) {
  auto wide = [&](const VectorLayout& vector) {
    return mx::astype(unpacked(rows, vector, format, mx::float32, s), mx::float32, s);
  };
  return {wide(layout.key), wide(layout.value)};
}

/// The logits of queries [B, Hkv, G, Dk] with sketched keys: [B, Hkv, G, n].
mx::array estimates(
    const mx::array& queries,
    const mx::array& sketch,
    const VectorLayout& layout,
    mx::Dtype dtype,
    mx::StreamOrDevice s) {
  if (layout.bits == 16) {
    auto keys = mx::swapaxes(mx::astype(sketch, mx::float32, s), 2, 3, s);
    return mx::matmul(queries, keys, s);
  }
  const int words = int(layout.scales() / 4);
  auto scales = mx::contiguous(sliced(sketch, 3, words, sketch.shape(3), s), false, s);
  auto both = mx::astype(mx::view(scales, dtype, s), mx::float32, s);
  auto halves = mx::split(both, 2, 3, s);
  return mx::quantized_matmul(
      queries, sliced(sketch, 3, 0, words, s), halves[0], halves[1], true,
      layout.group_size, layout.bits, "affine", s);
}

/// The rows of an archive, one by one. They are the last of an operation's inputs: the tail if it
/// has tokens, and the segments in memory.
class ArchivedRows {
 public:
  explicit ArchivedRows(const Archive& archive)
      : files_(archive.files()),
        stored_(archive.files().opened()),
        wanted_(archive.files().stored()),
        in_memory_(int(archive.segments().size())),
        first_(archive.first()),
        packed_(archive.layout()),
        dense_(archive.tail_layout()) {
  }

  static std::vector<mx::array> inputs(const Archive& archive) {
    std::vector<mx::array> arrays;
    if (archive.tail_tokens() > 0) {
      arrays.push_back(archive.tail()->pool);
    }
    arrays.insert(arrays.end(), archive.segments().begin(), archive.segments().end());
    return arrays;
  }

  /// Whether the rows of `positions` can be read; -1 is no position.
  bool can_read(const int32_t* positions, size_t count) const {
    if (int(stored_.size()) != wanted_) {
      return false;
    }
    std::vector<bool> is_checked(stored_.size());
    for (size_t i = 0; i < count; ++i) {
      const int segment = (positions[i] - first_) / segment_tokens;
      if (positions[i] < first_ || segment >= int(stored_.size()) || is_checked[segment]) {
        continue;
      }
      is_checked[segment] = true;
      if (!stored_[segment]->is_intact()) {
        files_.fail_reading(segment);
        return false;
      }
    }
    return true;
  }

  /// The key and the value of a position in float32.
  void read(
      std::vector<mx::array>& in, int head, int position, float* key, float* value) const {
    const int index = position - first_;
    const int segment = index / segment_tokens, token = index % segment_tokens;
    const RowLayout* layout = &packed_;
    const char* row;
    const int behind = segment - int(stored_.size());
    if (behind < 0) {
      row = stored_[segment]->row(token, head);
    } else if (behind < in_memory_) {
      auto& rows = in[in.size() - in_memory_ + behind];
      row = rows.data<char>() + (int64_t(head) * segment_tokens + token) * packed_.bytes();
    } else {
      layout = &dense_;
      auto& tail = in[in.size() - in_memory_ - 1];
      const int64_t at = (head / tail.shape(1)) * tail.strides(0) +
                         (head % tail.shape(1)) * tail.strides(1) + token * tail.strides(2);
      row = tail.data<char>() + at * int64_t(tail.itemsize());
    }
    for (auto [vector, to] : {std::pair{layout->key, key}, {layout->value, value}}) {
      cpu::kernels().to_float32(vector.view(row, 0), 1, vector.dim, to, vector.dim);
    }
  }

 private:
  ArchiveFiles files_;
  std::vector<std::shared_ptr<const StoredSegment>> stored_;
  int wanted_, in_memory_, first_;
  RowLayout packed_, dense_;
};

/// Gathers the chosen rows of an archive for a GPU. Inputs: chosen int32 [B, Hkv, k], and those
/// of ArchivedRows. Outputs: keys and values in float32, [B, Hkv, k, D], and what
/// is added to their logits, float32 [B, Hkv, 1, k]: -infinity where nothing was chosen or can be
/// read, else 0.
class Gatherer {
 public:
  explicit Gatherer(const Archive& archive) : rows_(archive) {
  }

  void run(std::vector<mx::array>& in, std::vector<mx::array>& out) const {
    const auto& chosen = in[0];
    const int32_t* positions = chosen.data<int32_t>();
    const int count = chosen.shape(2);
    const bool is_readable = rows_.can_read(positions, chosen.size());
    float* bias = out[2].data<float>();
    std::memset(out[0].data<char>(), 0, out[0].nbytes());
    std::memset(out[1].data<char>(), 0, out[1].nbytes());
    for (int64_t line = 0; line < int64_t(chosen.size()); ++line) {
      const bool is_read = positions[line] >= 0 && is_readable;
      bias[line] = is_read ? 0.0f : -infinity;
      if (is_read) {
        rows_.read(
            in, int(line / count), positions[line],
            out[0].data<float>() + line * out[0].shape(3),
            out[1].data<float>() + line * out[1].shape(3));
      }
    }
  }

 private:
  ArchivedRows rows_;
};

/// Reads an archive for one token, on the CPU. Inputs: queries [B, Hkv, G, Dk], kept, the sketch
/// of the segments if there are any, and of the tail if it has tokens, and those of
/// ArchivedRows. Outputs: those of Elsewhere in the shapes [B, Hkv, G, Dv] and [B, Hkv, G], and
/// the chosen positions, int32 [B, Hkv, k].
class Reader {
 public:
  Reader(const Archive& archive, int end)
      : rows_(archive),
        layout_(archive.sketch_layout()),
        sketches_((archive.sketch() ? 1 : 0) + (archive.tail_sketch() ? 1 : 0)),
        first_(archive.first()),
        end_(end) {
  }

  void run(std::vector<mx::array>& in, std::vector<mx::array>& out) const {
    const int heads = in[0].shape(0) * in[0].shape(1), reach = out[2].shape(2);
    int32_t* chosen = out[2].data<int32_t>();
    std::vector<float> best(end_ - first_);
    for (int head = 0; head < heads; ++head) {
      choose(in, head, best, chosen + int64_t(head) * reach, reach);
    }
    const bool is_readable = rows_.can_read(chosen, out[2].size());
    for (int head = 0; head < heads; ++head) {
      attend(in, head, chosen + int64_t(head) * reach, is_readable ? reach : 0, out);
    }
  }

 private:
  ArchivedRows rows_;
  VectorLayout layout_;
  int sketches_, first_, end_;

  static const float* queries_of(std::vector<mx::array>& in, int head) {
    return in[0].data<float>() + int64_t(head) * in[0].shape(2) * in[0].shape(3);
  }

  void choose(
      std::vector<mx::array>& in,
      int head,
      std::vector<float>& best,
      int32_t* chosen,
      int reach) const {
    const int count = int(best.size());
    int done = 0;
    for (int i = 2; i < 2 + sketches_ && done < count; ++i) {
      const auto& sketch = in[i];
      const int rows = std::min(sketch.shape(2), count - done);
      const int64_t start = int64_t(head) * sketch.shape(2) * sketch.shape(3);
      const char* data = sketch.data<char>() + start * int64_t(sketch.itemsize());
      cpu::kernels().largest_dots(
          queries_of(in, head), in[0].shape(2), layout_.view(data, layout_.bytes()), rows,
          in[0].shape(3), best.data() + done);
      done += rows;
    }
    const auto& kept = in[1];
    const int32_t* rows = kept.data<int32_t>() + int64_t(head) * kept.shape(2);
    for (int n = 0; n < kept.shape(2); ++n) {
      if (rows[n] >= first_ && rows[n] < end_) {
        best[rows[n] - first_] = -infinity;
      }
    }
    const auto found = largest_of(best, reach);
    std::fill(chosen, chosen + reach, -1);
    for (size_t n = 0; n < found.size(); ++n) {
      chosen[n] = first_ + found[n];
    }
  }

  /// The indices of the `most` largest values above -infinity; ties go to the lowest.
  static std::vector<int> largest_of(const std::vector<float>& values, int most) {
    std::vector<int> found;
    auto is_larger = [&](int a, int b) {
      return values[a] != values[b] ? values[a] > values[b] : a < b;
    };
    auto drop_smaller = [&] {
      std::nth_element(found.begin(), found.begin() + (most - 1), found.end(), is_larger);
      found.resize(most);
    };
    float least = -infinity;
    for (int i = 0; i < int(values.size()); ++i) {
      if (values[i] > least) {
        found.push_back(i);
        if (int(found.size()) == 2 * most) {
          drop_smaller();
          least = values[found.back()];
        }
      }
    }
    if (int(found.size()) > most) {
      drop_smaller();
    }
    return found;
  }

  /// Attends to the chosen rows of one head; to none if `count` is 0.
  void attend(
      std::vector<mx::array>& in,
      int head,
      const int32_t* chosen,
      int count,
      std::vector<mx::array>& out) const {
    const auto& kernels = cpu::kernels();
    const int group = in[0].shape(2), key_dim = in[0].shape(3), value_dim = out[0].shape(3);
    std::vector<float> keys(size_t(count) * key_dim), values(size_t(count) * value_dim);
    int rows = 0;
    for (; rows < count && chosen[rows] >= 0; ++rows) {
      rows_.read(in, head, chosen[rows], &keys[rows * key_dim], &values[rows * value_dim]);
    }
    // The value of a hidden row may be NaN or infinite, and 0 times that is NaN.
    for (float& value : values) {
      value = std::abs(value) < infinity ? value : 0.0f;
    }
    auto view = [](const std::vector<float>& vectors, int dim) {
      return cpu::RowsView{
          vectors.data(), cpu::Element::float32, dim * int64_t(sizeof(float))};
    };
    std::vector<float> logits(size_t(group) * rows);
    kernels.dot_rows(
        queries_of(in, head), group, view(keys, key_dim), rows, key_dim, logits.data(),
        rows);
    float* result = out[0].data<float>() + int64_t(head) * group * value_dim;
    for (int g = 0; g < group; ++g) {
      out[1].data<float>()[int64_t(head) * group + g] =
          softmax(logits.data() + g * int64_t(rows), rows);
    }
    kernels.mix_rows(
        logits.data(), group, rows, view(values, value_dim), rows, value_dim, false,
        result);
  }
};

/// Runs a worker on the CPU. The worker is shared, because it may run after MLX has released the
/// primitive.
template <class Worker>
class OnCpu : public mx::Primitive {
 public:
  OnCpu(mx::Stream stream, Worker worker)
      : Primitive(stream), worker_(std::make_shared<const Worker>(std::move(worker))) {
  }

  void eval_cpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    for (auto& output : outputs) {
      output.set_data(allocated(output));
    }
    cpu::dispatch(stream(), inputs, outputs, [worker = worker_](auto& in, auto& out) {
      worker->run(in, out);
    });
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::logic_error("[h2o] An archive is read on the CPU.");
  }

  DEFINE_NAME(H2OOnCpu)

 private:
  std::shared_ptr<const Worker> worker_;
};

bool computes_on_cpu(const Reading& reading, mx::StreamOrDevice s) {
  return !on_gpu(mx::to_stream(s)) && !reading.in_operations;
}

/// The softmax of logits [B, Hkv, l, n] plus a bias [B, Hkv, 1, n], and the logarithm of the sum of
/// exp, [B, Hkv, l]. MLX's own softmax takes most of the time of attention on a CPU.
class Softmax {
 public:
  void run(std::vector<mx::array>& in, std::vector<mx::array>& out) const {
    const int lines = in[0].shape(2), count = in[0].shape(3);
    for (int64_t line = 0; line < int64_t(out[1].size()); ++line) {
      const float* logits = in[0].data<float>() + line * count;
      const float* bias = in[1].data<float>() + line / lines * count;
      float* weights = out[0].data<float>() + line * count;
      for (int n = 0; n < count; ++n) {
        weights[n] = logits[n] + bias[n];
      }
      out[1].data<float>()[line] = softmax(weights, count);
    }
  }
};

/// What queries [B, Hkv, G * a, Dk] read from a tile, whose keys and values are finite. On a GPU, a
/// query that is not finite, or whose logits overflow, reads nothing from the tile.
Elsewhere read_tile(
    const mx::array& queries, const Tile& tile, bool on_cpu, mx::StreamOrDevice s) {
  const auto keys = mx::swapaxes(tile.keys, 2, 3, s);
  if (on_cpu) {
    const auto logits = mx::matmul(queries, keys, s);
    auto lines = logits.shape();
    lines.pop_back();
    const auto read = mx::array::make_arrays(
        {logits.shape(), lines}, {mx::float32, mx::float32},
        std::make_shared<OnCpu<Softmax>>(mx::to_stream(s), Softmax()),
        {mx::contiguous(logits, false, s), mx::contiguous(tile.bias, false, s)});
    return {mx::matmul(read[0], tile.values, s), read[1]};
  }
  // Each operation that reads or writes all logits takes time, so there are few.
  const auto logits = mx::addmm(tile.bias, queries, keys, 1.0f, 1.0f, s);
  const auto total = mx::logsumexp(logits, -1, false, s);
  const auto out = mx::matmul(mx::softmax(logits, -1, false, s), tile.values, s);
  const auto reads = is_finite(total, s);
  return {
      mx::where(mx::expand_dims(reads, 3, s), out, mx::array(0.0f), s),
      mx::where(reads, total, mx::array(-infinity), s)};
}

} // namespace readings

Elsewhere joined(const Elsewhere& a, const Elsewhere& b, mx::StreamOrDevice s) {
  auto total = mx::logaddexp(a.total, b.total, s);
  // Finite, so that the weight of nothing, exp of -infinity minus it, is 0.
  auto finite = mx::maximum(total, mx::array(lowest), s);
  auto weighted = [&](const Elsewhere& part) {
    auto weight = mx::exp(mx::subtract(part.total, finite, s), s);
    return mx::multiply(part.out, mx::expand_dims(weight, 3, s), s);
  };
  return {mx::add(weighted(a), weighted(b), s), total};
}

std::optional<Elsewhere> read_everything(
    const Reading& reading, const Archive& archive, mx::StreamOrDevice s) {
  using namespace readings;
  const auto queries = scaled_queries(reading, archive, s);
  const auto bias = bias_of_kept(reading, archive, s);
  const auto& heads = archive.heads();
  const int lines = queries.shape(2), block = std::min(lines, block_queries);
  const int64_t floats = heads.key_dim + heads.value_dim;
  const int64_t token_bytes =
      int64_t(heads.batch) * heads.kv_heads * (floats + 2 * block) * 4;
  const int segments =
      int(std::max<int64_t>(1, tile_bytes / (token_bytes * segment_tokens)));
  const int stored = archive.files().stored();
  const int whole = stored + int(archive.segments().size());
  const int count = reading.end - archive.first();

  std::vector<Elsewhere> blocks; // what each block of queries has read so far
  std::optional<Elsewhere> queued;
  auto add = [&](const std::pair<mx::array, mx::array>& rows, int begin) {
    const int end = std::min(count, begin + rows.first.shape(2));
    auto cut = [&](const mx::array& a) {
      return sliced(a, 2, 0, end - begin, s);
    };
    const auto tile =
        finite({cut(rows.first), cut(rows.second), sliced(bias, 3, begin, end, s)}, s);
    for (int i = 0; i * block < lines; ++i) {
      const int last = std::min(lines, (i + 1) * block);
      const auto read = read_tile(
          sliced(queries, 2, i * block, last, s), tile, computes_on_cpu(reading, s), s);
      if (begin == 0) {
        blocks.push_back(read);
      } else {
        blocks[i] = joined(blocks[i], read, s);
      }
      // Queues this block, and waits for the one before it.
      mx::async_eval(blocks[i].out, blocks[i].total);
      if (queued) {
        mx::eval(queued->out, queued->total);
      }
      queued = blocks[i];
    }
  };
  for (int begin = 0; begin < whole && begin * segment_tokens < count; begin += segments) {
    std::vector<mx::array> rows;
    for (int i = begin; i < std::min(whole, begin + segments); ++i) {
      rows.push_back(
          i < stored
              ? archive.files().load(i, heads, archive.format().dtype, archive.layout())
              : archive.segments()[i - stored]);
    }
    if (archive.failure()) {
      return std::nullopt;
    }
    const auto tile = mx::concatenate(rows, 2, s);
    add(widened(tile, archive.layout(), archive.format(), s), begin * segment_tokens);
  }
  if (whole * segment_tokens < count) {
    const auto tail = sliced(archive.tail()->pool, 2, 0, archive.tail_tokens(), s);
    add(widened(tail, archive.tail_layout(), {}, s), whole * segment_tokens);
  }
  std::vector<mx::array> outs, totals;
  for (const auto& read : blocks) {
    outs.push_back(read.out);
    totals.push_back(read.total);
  }
  return ungrouped(
      {mx::concatenate(outs, 2, s), mx::concatenate(totals, 2, s)}, reading, s);
}

namespace readings {

/// The sketches of the positions below the end.
std::vector<mx::array> sketches_of(const Archive& archive) {
  std::vector<mx::array> sketches;
  for (const auto& sketch : {archive.sketch(), archive.tail_sketch()}) {
    if (sketch) {
      sketches.push_back(*sketch);
    }
  }
  return sketches;
}

/// The outputs of a Reader.
std::vector<mx::array> read_on_cpu(
    const Reading& reading, int reach, const Archive& archive, mx::StreamOrDevice s) {
  const auto& heads = archive.heads();
  const int group = group_of(reading, archive);
  std::vector<mx::array> inputs{scaled_queries(reading, archive, s), reading.kept};
  for (const auto& sketch : sketches_of(archive)) {
    inputs.push_back(sketch);
  }
  for (auto& input : inputs) {
    input = mx::contiguous(input, false, s);
  }
  for (const auto& rows : ArchivedRows::inputs(archive)) {
    inputs.push_back(rows);
  }
  return mx::array::make_arrays(
      {{heads.batch, heads.kv_heads, group, heads.value_dim},
       {heads.batch, heads.kv_heads, group},
       {heads.batch, heads.kv_heads, reach}},
      {mx::float32, mx::float32, mx::int32},
      std::make_shared<OnCpu<Reader>>(mx::to_stream(s), Reader(archive, reading.end)),
      inputs);
}

} // namespace readings

mx::array matching_positions(
    const Reading& reading, int reach, const Archive& archive, mx::StreamOrDevice s) {
  using namespace readings;
  const int count = reading.end - archive.first();
  reach = std::min(reach, count);
  if (computes_on_cpu(reading, s)) {
    return read_on_cpu(reading, reach, archive, s)[2];
  }
  const auto queries = scaled_queries(reading, archive, s);
  std::vector<mx::array> parts;
  for (const auto& sketch : sketches_of(archive)) {
    parts.push_back(
        estimates(queries, sketch, archive.sketch_layout(), archive.format().dtype, s));
  }
  auto logits = sliced(mx::concatenate(parts, 3, s), 3, 0, count, s);
  logits = mx::where(is_finite(logits, s), logits, mx::array(-infinity), s);
  const auto bias = mx::squeeze(bias_of_kept(reading, archive, s), 2, s);
  auto best = mx::add(mx::max(logits, 2, false, s), bias, s);
  auto order = mx::argpartition(mx::negative(best, s), reach - 1, 2, s);
  auto chosen = mx::astype(sliced(order, 2, 0, reach, s), mx::int32, s);
  auto found =
      mx::greater(mx::take_along_axis(best, chosen, 2, s), mx::array(-infinity), s);
  return mx::where(found, mx::add(chosen, mx::array(archive.first()), s), mx::array(-1), s);
}

namespace {

/// What the queries of one token read.
std::optional<Elsewhere> read_of_token(
    const Reading& reading, int reach, const Archive& archive, mx::StreamOrDevice s) {
  using namespace readings;
  const auto& heads = archive.heads();
  const int batch = heads.batch, kv_heads = heads.kv_heads;
  if (computes_on_cpu(reading, s)) {
    const auto read = read_on_cpu(reading, reach, archive, s);
    if (archive.failure()) {
      return std::nullopt;
    }
    const int query_heads = reading.queries.shape(1);
    return Elsewhere{
        mx::reshape(read[0], {batch, query_heads, 1, heads.value_dim}, s),
        mx::reshape(read[1], {batch, query_heads, 1}, s)};
  }
  std::vector<mx::array> inputs{
      mx::contiguous(matching_positions(reading, reach, archive, s), false, s)};
  for (const auto& rows : ArchivedRows::inputs(archive)) {
    inputs.push_back(rows);
  }
  const auto cpu =
      on_gpu(mx::to_stream(s)) ? mx::default_stream(mx::Device::cpu) : mx::to_stream(s);
  const auto gathered = mx::array::make_arrays(
      {{batch, kv_heads, reach, heads.key_dim},
       {batch, kv_heads, reach, heads.value_dim},
       {batch, kv_heads, 1, reach}},
      {mx::float32, mx::float32, mx::float32},
      std::make_shared<OnCpu<Gatherer>>(cpu, Gatherer(archive)), inputs);
  if (archive.failure()) {
    return std::nullopt;
  }
  const auto queries = scaled_queries(reading, archive, s);
  const auto tile = finite({gathered[0], gathered[1], gathered[2]}, s);
  const auto read = read_tile(queries, tile, false, s);
  return ungrouped(read, reading, s);
}

} // namespace

std::optional<Elsewhere> read_matching(
    const Reading& reading, int reach, const Archive& archive, mx::StreamOrDevice s) {
  if (reading.end - archive.first() <= reach) {
    return read_everything(reading, archive, s);
  }
  std::vector<mx::array> outs, totals;
  for (const auto& queries : mx::split(reading.queries, reading.queries.shape(2), 2, s)) {
    Reading token = reading;
    token.queries = queries;
    const auto read = read_of_token(token, reach, archive, s);
    if (!read) {
      return std::nullopt;
    }
    outs.push_back(read->out);
    totals.push_back(read->total);
  }
  return Elsewhere{mx::concatenate(outs, 2, s), mx::concatenate(totals, 2, s)};
}

} // namespace h2o
