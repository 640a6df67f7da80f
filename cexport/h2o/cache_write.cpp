#include <algorithm>

#include "checks.h"
#include "cpu_attention.h"
#include "cpu_dispatch.h"
#include "functions.h"
#include "metal/encode.h"
#include "mlx/allocator.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "placement.h"
#include "row_layout.h"

namespace h2o {

namespace {

constexpr const char* function = "cache_write";

void put_tokens(
    const mx::array& keys,
    const mx::array& values,
    const mx::array& victim,
    int length,
    const CacheConfig& config,
    mx::array& rows) {
  const int heads = keys.shape(1), tokens = keys.shape(2), capacity = rows.shape(2);
  const RowLayout layout =
      make_layout(function, config.format, keys.shape(3), values.shape(3), keys.dtype());
  char* data = rows.data<char>();
  std::vector<float> key_storage, value_storage, scratch;
  for (int b = 0; b < keys.shape(0); ++b) {
    for (int h = 0; h < heads; ++h) {
      cpu::RowsView new_keys = cpu::rows_of(keys, b, h, key_storage);
      cpu::RowsView new_values = cpu::rows_of(values, b, h, value_storage);
      for (int l = 0; l < tokens; ++l) {
        int row = length + l;
        if (config.overwrites(tokens, length)) {
          row = std::clamp(
              victim.data<int32_t>()[b * victim.strides(0) + h * victim.strides(1)], 0,
              capacity - 1);
        }
        char* to = data + (int64_t(b * heads + h) * capacity + row) * layout.bytes();
        layout.key.store(cpu::row_at(new_keys, l), to, scratch);
        layout.value.store(cpu::row_at(new_values, l), to, scratch);
      }
    }
  }
}

/// inputs: keys, values, victim, then rows where there are any.
class CacheWrite : public mx::Primitive {
 public:
  CacheWrite(mx::Stream stream, int length, CacheConfig config, bool copy)
      : Primitive(stream), length_(length), config_(std::move(config)), copy_(copy) {
  }

  void eval_cpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    auto& out = outputs[0];
    bool has_rows = inputs.size() == 4;
    const bool shared = has_rows && !copy_ && share_rows(inputs[3], out);
    if (!shared) {
      out.set_data(mx::allocator::malloc(out.nbytes()));
    }
    const bool carry_over = has_rows && !shared;
    cpu::dispatch(
        stream(), inputs, outputs,
        [carry_over, length = length_, config = config_](auto& in, auto& out) {
          if (carry_over) {
            copy_rows(in[3], length, out[0]);
          }
          put_tokens(in[0], in[1], in[2], length, config, out[0]);
        });
  }

  void eval_gpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    const auto& keys = inputs[0];
    const auto& values = inputs[1];
    auto& out = outputs[0];
    if (inputs.size() == 4) {
      metal::carry_over(stream(), inputs[3], length_, !copy_, out);
    } else {
      out.set_data(mx::allocator::malloc(out.nbytes()));
    }
    const bool overwrites = config_.overwrites(keys.shape(2), length_);
    metal::Write write{keys, values, inputs[2], overwrites ? metal::over_victim : length_};
    write.pool_size = out.shape(2);
    write.pool_layout =
        make_layout(function, config_.format, keys.shape(3), values.shape(3), keys.dtype());
    metal::write(stream(), write, out, nullptr);
  }

  DEFINE_NAME(H2OCacheWrite)

 private:
  int length_;
  CacheConfig config_;
  bool copy_;
};

void check(
    const std::optional<mx::array>& rows,
    const mx::array& keys,
    const mx::array& values,
    const mx::array& victim,
    int length,
    int row,
    mx::Dtype dtype) {
  int batch = keys.shape(0), heads = keys.shape(1), tokens = keys.shape(2);
  if (values.shape(0) != batch || values.shape(1) != heads || values.shape(2) != tokens) {
    refuse(
        function, "keys has shape ", keys.shape(), " and values ", values.shape(),
        "; all but the head dim must agree.");
  }
  if (tokens < 1) {
    refuse(function, "keys has no tokens; expected at least one.");
  }
  if (victim.shape() != mx::Shape{batch, heads} || victim.dtype() != mx::int32) {
    refuse(
        function, "victim has shape ", victim.shape(), " and dtype ", victim.dtype(),
        "; expected int32 [", batch, ", ", heads, "].");
  }
  if (!rows) {
    if (length != 0) {
      refuse(function, "length is ", length, " but there are no rows.");
    }
    return;
  }
  if (rows->ndim() != 4 || rows->dtype() != dtype) {
    refuse(
        function, "rows has shape ", rows->shape(), " and dtype ", rows->dtype(),
        "; expected [B, Hkv, capacity, row] of ", dtype, ".");
  }
  if (rows->shape(0) != batch || rows->shape(1) != heads || rows->shape(3) != row) {
    refuse(
        function, "rows has shape ", rows->shape(), "; these keys and values want [", batch,
        ", ", heads, ", capacity, ", row, "].");
  }
  if (length < 0 || length > rows->shape(2)) {
    refuse(
        function, "length is ", length, "; rows has capacity for 0...", rows->shape(2),
        ".");
  }
}

} // namespace

mx::array cache_write(
    const std::optional<mx::array>& rows,
    const mx::array& keys,
    const mx::array& values,
    const mx::array& victim,
    int length,
    const CacheConfig& config,
    bool copy,
    mx::StreamOrDevice s) {
  validate(config);
  const RowFormat& format = config.format;
  check_heads(function, "keys", keys, "[B, Hkv, L, Dk]");
  check_heads(function, "values", values, "[B, Hkv, L, Dv]");
  auto dtype = format.is_dense() ? (rows ? rows->dtype() : keys.dtype()) : format.dtype;
  auto layout = make_layout(function, format, keys.shape(3), values.shape(3), dtype);
  auto row_dtype = rows_dtype(format, dtype);
  const int row = int(layout.bytes() / int64_t(mx::size_of(row_dtype)));
  check(rows, keys, values, victim, length, row, row_dtype);

  auto stream = mx::to_stream(s);
  auto new_keys = mx::astype(keys, dtype, stream);
  auto new_values = mx::astype(values, dtype, stream);
  int tokens = keys.shape(2);
  bool overwrites = config.overwrites(tokens, length);
  int capacity = grown_capacity(
      rows ? rows->shape(2) : 0, overwrites ? length : length + tokens, config.max_size);
  std::vector<mx::array> inputs{new_keys, new_values, victim};
  if (rows) {
    inputs.push_back(*rows);
  }
  return mx::array(
      {keys.shape(0), keys.shape(1), capacity, row}, row_dtype,
      std::make_shared<Placed<CacheWrite>>(stream, length, config, copy), inputs);
}

} // namespace h2o
