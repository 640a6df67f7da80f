#include <algorithm>
#include <cstring>

#include "checks.h"
#include "cpu_attention.h"
#include "cpu_dispatch.h"
#include "metal/encode.h"
#include "mixed.h"
#include "mlx/allocator.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "placement.h"
#include "row_layout.h"

namespace h2o {

namespace {

constexpr const char* function = "mixed_cache_write";

struct Settings {
  MixedConfig config;
  int offset; // tokens seen before
  int tokens;
  RowLayout pool_layout;
  RowLayout ring_layout;
};

char* row_of(mx::array& rows, int b, int h, int64_t row) {
  int64_t step = rows.shape(3) * int64_t(rows.itemsize());
  return rows.data<char>() +
         ((int64_t(b) * rows.shape(1) + h) * rows.shape(2) + row) * step;
}

void put_tokens(
    const Settings& settings,
    std::vector<mx::array>& inputs,
    mx::array& pool,
    mx::array& ring) {
  const auto& keys = inputs[0];
  const auto& values = inputs[1];
  const auto& victim = inputs[2];
  const int slots = settings.config.ring_rows(), offset = settings.offset;
  const bool single = settings.tokens == 1;
  std::vector<float> key_storage, value_storage, scratch, widened;
  for (int b = 0; b < keys.shape(0); ++b) {
    for (int h = 0; h < keys.shape(1); ++h) {
      if (single && offset >= slots) {
        int chosen = victim.data<int32_t>()[b * victim.strides(0) + h * victim.strides(1)];
        int target = pool_row_for_leaving(settings.config, offset, chosen);
        if (target >= 0) {
          const char* from = row_of(ring, b, h, offset % slots);
          char* to = row_of(pool, b, h, target);
          move_row(settings.ring_layout, from, settings.pool_layout, to, widened, scratch);
        }
      }
      auto new_keys = cpu::rows_of(keys, b, h, key_storage);
      auto new_values = cpu::rows_of(values, b, h, value_storage);
      const int first = single ? offset % slots : ring_length(settings.config, offset);
      for (int l = 0; l < settings.tokens; ++l) {
        char* to = row_of(ring, b, h, first + l);
        settings.ring_layout.key.store(cpu::row_at(new_keys, l), to, scratch);
        settings.ring_layout.value.store(cpu::row_at(new_values, l), to, scratch);
      }
    }
  }
}

/// inputs: keys, values, victim, then pool and ring where there are any; outputs: pool,
/// ring.
class MixedCacheWrite : public mx::Primitive {
 public:
  MixedCacheWrite(mx::Stream stream, Settings settings, bool copy)
      : Primitive(stream), settings_(std::move(settings)), copy_(copy) {
  }

  void eval_cpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    const bool has_rows = inputs.size() == 5;
    bool carry_over[2] = {false, false};
    for (int i : {0, 1}) {
      const bool shared = has_rows && !copy_ && share_rows(inputs[3 + i], outputs[i]);
      if (!shared) {
        outputs[i].set_data(mx::allocator::malloc(outputs[i].nbytes()));
      }
      carry_over[i] = has_rows && !shared;
    }
    cpu::dispatch(
        stream(), inputs, outputs,
        [settings = settings_, pool = carry_over[0], ring = carry_over[1]](
            auto& in, auto& out) {
          if (pool) {
            copy_rows(in[3], pool_length(settings.config, settings.offset), out[0]);
          }
          if (ring) {
            copy_rows(in[4], ring_length(settings.config, settings.offset), out[1]);
          }
          put_tokens(settings, in, out[0], out[1]);
        });
  }

  void eval_gpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    const MixedConfig& config = settings_.config;
    const int offset = settings_.offset;
    const int used[] = {pool_length(config, offset), ring_length(config, offset)};
    for (int i : {0, 1}) {
      if (inputs.size() == 5) {
        metal::carry_over(stream(), inputs[3 + i], used[i], !copy_, outputs[i]);
      } else {
        outputs[i].set_data(mx::allocator::malloc(outputs[i].nbytes()));
      }
    }
    const bool single = settings_.tokens == 1;
    metal::Write write{
        inputs[0], inputs[1], inputs[2], single ? offset % config.ring_rows() : used[1]};
    write.leaves = single && offset >= config.ring_rows();
    write.pool_used = used[0];
    write.pool_size = config.pool_rows();
    write.pool_layout = settings_.pool_layout;
    write.ring_layout = settings_.ring_layout;
    metal::write(stream(), write, outputs[0], &outputs[1]);
  }

  DEFINE_NAME(H2OMixedCacheWrite)

 private:
  Settings settings_;
  bool copy_;
};

} // namespace

MixedRows mixed_cache_write(
    const std::optional<MixedRows>& rows,
    const mx::array& keys,
    const mx::array& values,
    const mx::array& victim,
    int offset,
    const MixedConfig& config,
    bool copy,
    mx::StreamOrDevice s) {
  validate(config);
  check_heads(function, "keys", keys, "[B, Hkv, L, Dk]");
  check_heads(function, "values", values, "[B, Hkv, L, Dv]");
  const int batch = keys.shape(0), heads = keys.shape(1), tokens = keys.shape(2);
  if (values.shape(0) != batch || values.shape(1) != heads || values.shape(2) != tokens ||
      tokens < 1) {
    refuse(
        function, "keys has shape ", keys.shape(), " and values ", values.shape(),
        "; all but the head dim must agree, with at least one token.");
  }
  if (victim.shape() != mx::Shape{batch, heads} || victim.dtype() != mx::int32) {
    refuse(
        function, "victim has shape ", victim.shape(), "; expected int32 [", batch, ", ",
        heads, "].");
  }
  if (offset < 0 || (!rows && offset != 0)) {
    refuse(function, "offset is ", offset, " but there are no rows.");
  }
  auto layout = [&](const RowFormat& format) {
    return make_layout(function, format, keys.shape(3), values.shape(3), config.dtype);
  };
  Settings settings{
      config, offset, tokens, layout(config.pool_format()), layout(config.ring_format())};
  auto width = [](const RowLayout& layout, mx::Dtype dtype) {
    return int(layout.bytes() / int64_t(mx::size_of(dtype)));
  };
  auto pool_dtype = rows_dtype(config.pool_format(), config.dtype);
  auto ring_dtype = rows_dtype(config.ring_format(), config.dtype);
  const int pool_width = width(settings.pool_layout, pool_dtype);
  const int ring_width = width(settings.ring_layout, ring_dtype);
  if (rows) {
    auto fits = [&](const mx::array& a, int row, mx::Dtype dtype, int least) {
      return a.ndim() == 4 && a.shape(0) == batch && a.shape(1) == heads &&
             a.shape(2) >= least && a.shape(3) == row && a.dtype() == dtype;
    };
    if (!fits(rows->pool, pool_width, pool_dtype, pool_length(config, offset)) ||
        !fits(rows->ring, ring_width, ring_dtype, ring_length(config, offset))) {
      refuse(
          function, "pool has shape ", rows->pool.shape(), " and ring ", rows->ring.shape(),
          "; these keys and this configuration want rows of ", pool_width, " and ",
          ring_width, " for ", offset, " tokens.");
    }
  }
  const bool single = tokens == 1;
  const int pool_capacity = grown_capacity(
      rows ? rows->pool.shape(2) : 0,
      std::max(1, pool_length(config, single ? offset + 1 : offset)), config.pool_rows());
  const int ring_capacity = grown_capacity(
      rows ? rows->ring.shape(2) : 0,
      single ? ring_length(config, offset + 1) : ring_length(config, offset) + tokens,
      config.ring_rows());
  auto stream = mx::to_stream(s);
  std::vector<mx::array> inputs{
      mx::astype(keys, config.dtype, stream), mx::astype(values, config.dtype, stream),
      victim};
  if (rows) {
    inputs.push_back(rows->pool);
    inputs.push_back(rows->ring);
  }
  auto outputs = mx::array::make_arrays(
      {{batch, heads, pool_capacity, pool_width},
       {batch, heads, ring_capacity, ring_width}},
      {pool_dtype, ring_dtype},
      std::make_shared<Placed<MixedCacheWrite>>(stream, settings, copy), inputs);
  return {outputs[0], outputs[1]};
}

} // namespace h2o
