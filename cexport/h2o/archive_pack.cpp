#include "archive_files.h"
#include "primitives.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "checks.h"
#include "cpu_attention.h"
#include "fallback.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "policy.h"

namespace h2o {

namespace archiving {

struct Settings {
  RowLayout layout;
  Policy policy;
  int position;
  bool has_tail;
};

/// One evaluation on the CPU. Inputs: rows and novelty of the tail, if there is one, then
/// keys, values and key_sum of each piece. Outputs: rows and novelty of each block.
class Pack {
 public:
  Pack(const Settings& settings, std::vector<mx::array>& in, std::vector<mx::array>& out)
      : settings_(settings), in_(in), out_(out) {
  }

  void run() {
    const auto& layout = settings_.layout;
    int most = 1;
    for (size_t i = first_piece(); i < in_.size(); i += 3) {
      most = std::max(most, in_[i].shape(2));
    }
    scores_.resize(most);
    positions_.resize(most);
    novelty_.resize(most);
    key_sum_.resize(layout.key.dim);
    scratch_.resize(layout.key.dim);
    for (int b = 0; b < out_[0].shape(0); ++b) {
      for (int h = 0; h < out_[0].shape(1); ++h) {
        pack_head(b, h);
      }
    }
  }

 private:
  const Settings& settings_;
  std::vector<mx::array>& in_;
  std::vector<mx::array>& out_;
  std::vector<float> scores_, novelty_, key_sum_, scratch_, packing_, key_storage_,
      value_storage_;
  std::vector<int32_t> positions_;

  size_t first_piece() const {
    return settings_.has_tail ? 2 : 0;
  }
  char* row_of(int b, int h, int n) {
    auto& rows = out_[n / segment_tokens * 2];
    const int64_t row = (int64_t(b) * rows.shape(1) + h) * rows.shape(2);
    return rows.data<char>() + (row + n % segment_tokens) * settings_.layout.bytes();
  }
  float& novelty_of(int b, int h, int n) {
    auto& novelty = out_[n / segment_tokens * 2 + 1];
    return cpu::head_of<float>(novelty, b, h)[n % segment_tokens];
  }

  void pack_head(int b, int h) {
    int n = 0;
    if (settings_.has_tail) {
      for (; n < in_[0].shape(2); ++n) {
        cpu::copy_vector(in_[0], b, h, n, row_of(b, h, n));
        novelty_of(b, h, n) = cpu::head_of<float>(in_[1], b, h)[n * in_[1].strides(2)];
      }
    }
    int position = settings_.position;
    for (size_t i = first_piece(); i < in_.size(); i += 3) {
      const int count = in_[i].shape(2);
      pack_piece(b, h, i, n, position);
      n += count;
      position += count;
    }
  }

  /// Packs the piece whose inputs begin at `i` into the head's rows from `to` on.
  void pack_piece(int b, int h, size_t i, int to, int position) {
    const RowLayout& layout = settings_.layout;
    auto& sum = in_[i + 2];
    for (int d = 0; d < layout.key.dim; ++d) {
      key_sum_[d] = cpu::head_of<float>(sum, b, h)[d * sum.strides(2)];
    }
    cpu::HeadLedger ledger{
        scores_.data(), positions_.data(), novelty_.data(), key_sum_.data()};
    const auto keys = cpu::rows_of(in_[i], b, h, key_storage_);
    const auto values = cpu::rows_of(in_[i + 1], b, h, value_storage_);
    for (int t = 0; t < in_[i].shape(2); ++t) {
      const auto key = cpu::row_at(keys, t);
      cpu::enter_token(
          settings_.policy, ledger, t, position + t, key, layout.key.dim, scratch_.data());
      novelty_of(b, h, to + t) = novelty_[t];
      char* row = row_of(b, h, to + t);
      store_key(key, row);
      layout.value.store(cpu::row_at(values, t), row, packing_);
    }
  }

  void store_key(cpu::RowsView key, char* row) {
    const VectorLayout& layout = settings_.layout.key;
    bool finite = true;
    if (layout.bits < 16) {
      cpu::kernels().to_float32(key, 1, layout.dim, scratch_.data(), layout.dim);
      for (int d = 0; d < layout.dim; ++d) {
        finite = finite && std::isfinite(scratch_[d]);
      }
    }
    if (finite) {
      layout.store(key, row, packing_);
      return;
    }
    std::fill_n(scratch_.begin(), layout.dim, 0.0f);
    layout.store({scratch_.data(), cpu::Element::float32, 0}, row, packing_);
    const int groups = layout.dim / layout.group_size;
    std::fill_n(scratch_.begin(), groups, std::numeric_limits<float>::quiet_NaN());
    cpu::kernels().from_float32(
        scratch_.data(), groups, layout.element, row + layout.biases());
  }
};

class PackArchive : public mx::Primitive {
 public:
  PackArchive(mx::Stream stream, Settings settings)
      : Primitive(stream), settings_(std::move(settings)) {
  }

  void eval_cpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    for (auto& output : outputs) {
      output.set_data(allocated(output));
    }
    cpu::dispatch(stream(), inputs, outputs, [settings = settings_](auto& in, auto& out) {
      Pack(settings, in, out).run();
    });
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::logic_error("[h2o] On a GPU, MLX operations must pack an archive.");
  }

  DEFINE_NAME(H2OPackArchive)

 private:
  Settings settings_;
};

/// Computes rows of tokens with MLX operations.
mx::array rows_in_operations(
    const mx::array& keys, const mx::array& values, const RowFormat& format, mx::Stream s) {
  if (format.is_dense()) {
    return packed_rows(keys, values, format, s);
  }
  auto finite = mx::all(mx::isfinite(keys, s), -1, true, s);
  auto clean = mx::where(finite, keys, mx::zeros_like(keys, s), s);
  auto rows = packed_rows(clean, values, format, s);
  // The key's biases are the last words of the packed key.
  const RowLayout layout =
      make_layouts("Archive", format, keys.shape(3), values.shape(3), format.dtype).pool;
  const int begin = int(layout.key.biases() / 4), end = int(layout.key.bytes() / 4);
  const uint32_t nan = format.dtype == mx::float32   ? 0x7fc00000u
                       : format.dtype == mx::float16 ? 0x7e007e00u
                                                     : 0x7fc07fc0u;
  auto column = mx::arange(rows.shape(3), s);
  auto is_bias = mx::logical_and(
      mx::greater_equal(column, mx::array(begin), s), mx::less(column, mx::array(end), s),
      s);
  auto spoiled = mx::logical_and(is_bias, mx::logical_not(finite, s), s);
  return mx::where(spoiled, mx::array(nan, mx::uint32), rows, s);
}

std::vector<ArchiveBlock> in_operations(
    const std::optional<ArchiveBlock>& tail,
    const std::vector<ArchivePiece>& pieces,
    int position,
    const RowFormat& format,
    const Policy& policy,
    mx::Stream s) {
  std::vector<mx::array> all_keys, all_values, all_sums;
  for (const auto& piece : pieces) {
    all_keys.push_back(piece.keys);
    all_values.push_back(piece.values);
    all_sums.push_back(mx::expand_dims(piece.key_sum, 2, s));
  }
  const auto keys = mx::concatenate(all_keys, 2, s), units = fallback::unit_keys(keys, s);
  const auto sums = pieces.size() == 1 ? fallback::key_sums(units, pieces[0].key_sum, s)
                                       : mx::add(mx::concatenate(all_sums, 2, s), units, s);
  auto rows = rows_in_operations(keys, mx::concatenate(all_values, 2, s), format, s);
  auto novelty = fallback::key_novelty(keys, units, sums, position, policy, s);
  if (tail) {
    rows = mx::concatenate({tail->rows, rows}, 2, s);
    novelty = mx::concatenate({tail->novelty, novelty}, 2, s);
  }
  std::vector<ArchiveBlock> blocks;
  for (int n = 0; n < rows.shape(2); n += segment_tokens) {
    const int end = std::min(rows.shape(2), n + segment_tokens);
    // Each block has its own buffer, so that each can be released alone.
    auto cut = [&](const mx::array& a) {
      return mx::contiguous(sliced(a, 2, n, end, s), false, s);
    };
    blocks.push_back({cut(rows), cut(novelty)});
  }
  return blocks;
}

} // namespace archiving

std::vector<ArchiveBlock> pack_archive(
    const std::optional<ArchiveBlock>& tail,
    const std::vector<ArchivePiece>& pieces,
    int position,
    const RowFormat& format,
    const Policy& policy,
    mx::StreamOrDevice s) {
  auto stream = mx::to_stream(s);
  if (on_gpu(stream)) {
    return archiving::in_operations(tail, pieces, position, format, policy, stream);
  }
  const auto& first = pieces[0];
  archiving::Settings settings{
      make_layouts(
          "Archive", format, first.keys.shape(3), first.values.shape(3), format.dtype)
          .pool,
      policy, position, tail.has_value()};
  std::vector<mx::array> inputs;
  int total = 0;
  if (tail) {
    inputs = {tail->rows, tail->novelty};
    total = tail->count();
  }
  for (const auto& piece : pieces) {
    inputs.insert(inputs.end(), {piece.keys, piece.values, piece.key_sum});
    total += piece.keys.shape(2);
  }
  const auto dtype = rows_dtype(settings.layout, format.dtype);
  const int width = int(settings.layout.bytes() / int64_t(mx::size_of(dtype)));
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  for (int n = 0; n < total; n += segment_tokens) {
    const int count = std::min(total - n, segment_tokens);
    shapes.push_back({first.keys.shape(0), first.keys.shape(1), count, width});
    shapes.push_back({first.keys.shape(0), first.keys.shape(1), count});
    dtypes.insert(dtypes.end(), {dtype, mx::float32});
  }
  auto outputs = mx::array::make_arrays(
      std::move(shapes), dtypes,
      std::make_shared<archiving::PackArchive>(stream, std::move(settings)), inputs);
  std::vector<ArchiveBlock> blocks;
  for (size_t i = 0; i < outputs.size(); i += 2) {
    blocks.push_back({outputs[i], outputs[i + 1]});
  }
  return blocks;
}

} // namespace h2o
