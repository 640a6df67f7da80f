#include "functions.h"

#include <algorithm>

#include "cache_step.h"
#include "checks.h"
#include "cpu_attention.h"
#include "fallback.h"
#include "metal/encode.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "primitives.h"
#include "row_layout.h"

namespace h2o {

Ledger make_ledger(
    int batch, int kv_heads, const CacheConfig& config, mx::StreamOrDevice s) {
  if (batch < 1 || kv_heads < 1) {
    refuse(
        "make_ledger", "batch and kv_heads are ", batch, " and ", kv_heads,
        "; each must be at least 1.");
  }
  if (!config.evicts()) {
    refuse(
        "make_ledger", "max_size is ", config.max_size, ": the cache keeps every token.");
  }
  mx::Shape rows{batch, kv_heads, config.max_size};
  return {
      mx::full(rows, -1.0f, mx::float32, s), mx::full(rows, -1, mx::int32, s),
      mx::full({batch, kv_heads}, -1, mx::int32, s)};
}

Ledger trim_ledger(const Ledger& ledger, int length, mx::StreamOrDevice s) {
  const int size = ledger.scores.shape(2);
  auto stays = mx::less(mx::arange(size, s), mx::array(length), s);
  return {
      mx::where(stays, ledger.scores, mx::array(-1.0f), s),
      mx::where(stays, ledger.positions, mx::array(-1), s),
      mx::full(ledger.victim.shape(), -1, mx::int32, s)};
}

namespace {

constexpr const char* cache_write_function = "cache_write";

namespace input {
enum { keys, values, victim, rows };
}

char* row_of(mx::array& rows, int b, int h, int64_t row) {
  int64_t step = rows.shape(3) * int64_t(rows.itemsize());
  return rows.data<char>() +
         ((int64_t(b) * rows.shape(1) + h) * rows.shape(2) + row) * step;
}

/// `buffers` are the pool and, if there is one, the ring.
void put_tokens(
    const CacheStep& step,
    const Layouts& layouts,
    const std::vector<mx::array>& inputs,
    std::vector<mx::array>& buffers) {
  const auto& keys = inputs[input::keys];
  const auto& values = inputs[input::values];
  const auto& victims = inputs[input::victim];
  auto& pool = buffers[0];
  auto& newest = buffers.back();
  const RowLayout& layout = layouts.newest();
  std::vector<float> key_storage, value_storage, scratch, widened;
  for (int b = 0; b < keys.shape(0); ++b) {
    for (int h = 0; h < keys.shape(1); ++h) {
      const int victim =
          victims.data<int32_t>()[b * victims.strides(0) + h * victims.strides(1)];
      int first = step.first_row();
      if (first == over_victim) {
        first = std::clamp(victim, 0, pool.shape(2) - 1);
      }
      if (step.leaves_ring()) {
        const int row = step.pool_row_for_leaving(victim);
        if (row >= 0) {
          move_row(
              layout, row_of(newest, b, h, first), layouts.pool, row_of(pool, b, h, row),
              widened, scratch);
        }
      }
      auto new_keys = cpu::rows_of(keys, b, h, key_storage);
      auto new_values = cpu::rows_of(values, b, h, value_storage);
      for (int t = 0; t < step.tokens; ++t) {
        char* to = row_of(newest, b, h, first + t);
        layout.key.store(cpu::row_at(new_keys, t), to, scratch);
        layout.value.store(cpu::row_at(new_values, t), to, scratch);
      }
    }
  }
}

/// inputs: keys, values, victim, then pool and ring if present; outputs: pool and, if the
/// format has one, ring.
class CacheWrite : public mx::Primitive {
 public:
  CacheWrite(mx::Stream stream, CacheStep step, Layouts layouts, bool copy)
      : Primitive(stream),
        step_(std::move(step)),
        layouts_(std::move(layouts)),
        copy_(copy) {
  }

  void eval_cpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    cpu::dispatch(
        stream(), inputs, outputs,
        [copied = allocate(inputs, outputs), step = step_, layouts = layouts_](
            auto& in, auto& out) {
          for (size_t i : copied) {
            copy_rows(in[input::rows + i], used_before(step, i), out[i]);
          }
          put_tokens(step, layouts, in, out);
        });
  }

  void eval_gpu(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    for (size_t i : allocate(inputs, outputs)) {
      metal::copy_rows(
          stream(), inputs[input::rows + i], used_before(step_, i), outputs[i]);
    }
    metal::write(
        stream(), step_, layouts_, inputs[input::keys], inputs[input::values],
        inputs[input::victim], outputs);
  }

  DEFINE_NAME(H2OCacheWrite)

 private:
  CacheStep step_;
  Layouts layouts_;
  bool copy_;

  /// Gives every output its memory: the buffer of its input, or a new one. Returns the
  /// indices of the outputs into which earlier rows must be copied.
  std::vector<size_t> allocate(
      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const {
    std::vector<size_t> copied;
    const bool has_rows = inputs.size() > input::rows;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (has_rows && !copy_ && share_rows(inputs[input::rows + i], outputs[i])) {
        continue;
      }
      outputs[i].set_data(allocated(outputs[i]));
      if (has_rows) {
        copied.push_back(i);
      }
    }
    return copied;
  }

  static int used_before(const CacheStep& step, size_t buffer) {
    return buffer == 0 ? step.pool_length(step.offset) : step.ring_length(step.offset);
  }
};

void check(const WriteArguments& arguments, const RowFormat& format) {
  const auto& [rows, keys, values, victim, offset, copy] = arguments;
  check_tokens_of(cache_write_function, keys, values);
  const int batch = keys.shape(0), heads = keys.shape(1), tokens = keys.shape(2);
  check_tokens(cache_write_function, offset, tokens);
  if (rows) {
    check_rows(cache_write_function, *rows, format);
  }
  if (victim.shape() != mx::Shape{batch, heads} || victim.dtype() != mx::int32) {
    refuse(
        cache_write_function, "victim has shape ", victim.shape(), " and dtype ",
        victim.dtype(), "; expected int32 [", batch, ", ", heads, "].");
  }
  if (!rows && offset != 0) {
    refuse(cache_write_function, "offset is ", offset, " but there are no rows.");
  }
}

/// `rows` must be a buffer for rows of these keys and values, with at least `used` rows.
void check_buffer(
    const char* name, const mx::array& rows, const mx::Shape& keys, int width, int used) {
  if (rows.shape(0) != keys[0] || rows.shape(1) != keys[1] || rows.shape(3) != width) {
    refuse(
        cache_write_function, name, " has shape ", rows.shape(),
        "; these keys and values need [", keys[0], ", ", keys[1], ", capacity, ", width,
        "].");
  }
  if (used > rows.shape(2)) {
    refuse(
        cache_write_function, name, " has ", rows.shape(2),
        " rows; the earlier tokens need ", used, ".");
  }
}

} // namespace

Rows cache_write(
    const WriteArguments& arguments, const CacheConfig& config, mx::StreamOrDevice s) {
  const RowFormat& format = config.format;
  check(arguments, format);
  const auto& [rows, keys, values, victim, offset, copy] = arguments;
  const CacheStep step{config, offset, keys.shape(2)};
  auto dtype = rows                    ? vectors_dtype(*rows, format)
               : format.is_all_dense() ? keys.dtype()
                                       : format.dtype;
  const Layouts layouts =
      make_layouts(cache_write_function, format, keys.shape(3), values.shape(3), dtype);

  auto stream = mx::to_stream(s);
  std::vector<mx::array> inputs{
      mx::astype(as_stored(keys, format, stream), dtype, stream),
      mx::astype(as_stored(values, format, stream), dtype, stream), victim};
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  auto add = [&](const char* name, const mx::array* old, const RowLayout& layout,
                 int used_before, int used, int most) {
    auto row_dtype = rows_dtype(layout, dtype);
    const int width = row_width(layout, row_dtype);
    if (old) {
      check_buffer(name, *old, keys.shape(), width, used_before);
      inputs.push_back(*old);
    }
    const int capacity = grown_capacity(old ? old->shape(2) : 0, std::max(1, used), most);
    shapes.push_back({keys.shape(0), keys.shape(1), capacity, width});
    dtypes.push_back(row_dtype);
  };
  add("pool", rows ? &rows->pool : nullptr, layouts.pool, step.pool_length(offset),
      step.pool_used(), config.pool_rows());
  if (layouts.ring) {
    add("ring", rows ? &*rows->ring : nullptr, *layouts.ring, step.ring_length(offset),
        step.ring_used(), config.ring_rows());
  }
  auto outputs = mx::array::make_arrays(
      std::move(shapes), dtypes,
      std::make_shared<Placed<CacheWrite>>(stream, step, layouts, copy), inputs);
  return rows_from(outputs.begin(), outputs.end());
}

} // namespace h2o
