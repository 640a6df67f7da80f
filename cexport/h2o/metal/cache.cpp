#include "build.h"
#if H2O_METAL

#include <algorithm>

#include "encode.h"
#include "encoder.h"

namespace h2o::metal {

namespace {

H2OTokens tokens_of(const mx::array& a) {
  return {a.strides(0), a.strides(1), a.strides(2), a.strides(3)};
}

H2ORows rows_of(const mx::array& rows, const RowLayout& layout) {
  return {
      rows.shape(2) * layout.bytes(), layout.bytes(), layout_parameters(layout.key),
      layout_parameters(layout.value)};
}

} // namespace

H2OVectorLayout layout_parameters(const VectorLayout& layout) {
  return {
      layout.dim, int32_t(layout.start), int32_t(layout.scales()),
      int32_t(layout.biases())};
}

void copy_rows(mx::Stream stream, const mx::array& from, int length, mx::array& to) {
  Encoder(stream).copy_rows(from, length, to);
}

void write(
    mx::Stream stream,
    const CacheStep& step,
    const Layouts& layouts,
    const mx::array& keys,
    const mx::array& values,
    const mx::array& victim,
    std::vector<mx::array>& buffers) {
  Encoder encoder(stream);
  auto& pool = buffers[0];
  const bool has_ring = layouts.ring.has_value();
  H2OWrite parameters{
      keys.shape(1),
      step.first_row(),
      step.leaves_ring(),
      step.pool_length(step.offset),
      has_ring ? step.config.pool_rows() : pool.shape(2),
      tokens_of(keys),
      tokens_of(values),
      rows_of(pool, layouts.pool),
      {}};
  Constants constants;
  constants.set(constant::key_bits, int32_t(layouts.pool.key.bits))
      .set(constant::value_bits, int32_t(layouts.pool.value.bits))
      .set(constant::group_size, int32_t(layouts.pool.key.group_size))
      .set(constant::ring_bits, int32_t(step.config.format.recent_bits));
  encoder.use({"h2o_write_row", {type_name(keys.dtype())}}, constants);
  encoder->set_input_array(keys, 0);
  encoder->set_input_array(values, 1);
  encoder->set_input_array(encoder.contiguous(victim), 2);
  encoder->set_output_array(pool, 3);
  if (has_ring) {
    parameters.ring = rows_of(buffers[1], *layouts.ring);
    encoder->set_output_array(buffers[1], 4);
  }
  encoder->set_bytes(parameters, 5);
  const int groups = (keys.shape(3) + values.shape(3)) / 64;
  encoder.dispatch(
      MTL::Size(keys.shape(0) * keys.shape(1), keys.shape(2), 1),
      MTL::Size(32 * std::clamp(groups, 1, 8), 1, 1));
}

namespace {

int32_t mask_kind(const std::optional<mx::array>& mask) {
  if (!mask) {
    return H2O_MASK_NONE;
  }
  if (mask->dtype() == mx::bool_) {
    return H2O_MASK_BOOL;
  }
  return mask->dtype() == mx::float16    ? H2O_MASK_FLOAT16
         : mask->dtype() == mx::bfloat16 ? H2O_MASK_BFLOAT16
                                         : H2O_MASK_FLOAT32;
}

H2OLedger parameters_of(const LedgerUpdate& update, int kv_heads, int group) {
  const CacheStep& step = update.step;
  const CacheConfig& config = step.config;
  const int first_row = step.first_row();
  H2OLedger p{};
  p.kv_heads = kv_heads;
  p.group = group;
  p.tokens = step.tokens;
  p.rows = step.rows();
  p.size = config.max_size;
  p.offset = step.offset;
  p.first_row = config.format.has_ring() ? config.pool_rows() + first_row : first_row;
  p.leaves = step.leaves_ring();
  p.pool_used = step.pool_length(step.offset);
  p.pool_rows = step.pool_used();
  p.pool_size = config.pool_rows();
  p.observed_from = std::max(0, step.tokens - observation_window);
  p.chooses = step.chooses_victim();
  p.recent_from = step.seen() + 1 - config.recent_budget;
  p.pin_count = int32_t(config.pinned.size());
  p.policy = kernel_parameters<H2OPolicyParameters>(config);
  if (update.mask) {
    p.mask_batch = update.mask->strides(0);
    p.mask_head = update.mask->strides(1);
    p.mask_query = update.mask->strides(2);
    p.mask_row = update.mask->strides(3);
  }
  return p;
}

void encode_ledger(
    Encoder& encoder,
    const LedgerUpdate& update,
    const std::vector<mx::array>& ledger,
    const mx::array* logits,
    int group,
    std::vector<mx::array>& outputs) {
  const auto sinks = update.attention ? update.attention->sinks : std::nullopt;
  const CacheConfig& config = update.step.config;
  const auto& pinned = config.pinned;
  Constants constants;
  constants.set(constant::has_sinks, sinks.has_value())
      .set(constant::ring_bits, int32_t(config.format.recent_bits))
      .set(constant::score, int32_t(config.score))
      .set(constant::mask_kind, mask_kind(update.mask))
      .set(constant::observes, logits != nullptr)
      .set(constant::has_pins, !pinned.empty());
  encoder.use({"h2o_update_ledger", {type_name(update.dtype)}}, constants);
  const int batch = ledger[0].shape(0), kv_heads = ledger[0].shape(1);
  if (logits != nullptr) {
    encoder->set_input_array(*logits, 0);
  }
  for (int i = 0; i < 3; ++i) {
    encoder->set_input_array(ledger[i], 1 + i);
    encoder->set_output_array(outputs[i], 4 + i);
  }
  encoder->set_bytes(parameters_of(update, kv_heads, group), 7);
  if (update.mask) {
    encoder->set_input_array(*update.mask, 8);
  }
  if (sinks) {
    encoder->set_input_array(*sinks, 9);
  }
  if (!pinned.empty()) {
    std::vector<int32_t> pins;
    for (auto [begin, end] : pinned) {
      pins.push_back(begin);
      pins.push_back(end);
    }
    mx::array table(pins.data(), {int(pins.size())}, mx::int32);
    encoder.keep(table);
    encoder->set_input_array(table, 10);
  }
  const int wanted = (config.max_size + 31) / 32 * 32;
  const int threads = std::min(std::clamp(wanted, 256, 1024), encoder.max_threads());
  encoder.dispatch(MTL::Size(batch * kv_heads, 1, 1), MTL::Size(threads, 1, 1));
}

} // namespace

void update_ledger(
    mx::Stream stream,
    const LedgerUpdate& update,
    const std::vector<mx::array>& ledger,
    std::vector<mx::array>& outputs) {
  Encoder encoder(stream);
  std::vector<mx::array> entries;
  for (const auto& a : ledger) {
    entries.push_back(encoder.contiguous(a));
  }
  if (!update.attention) {
    encode_ledger(encoder, update, entries, nullptr, 1, outputs);
    return;
  }
  const Attention& attention = *update.attention;
  const int lines = attention.batch() * attention.heads() * attention.tokens();
  auto logits = encoder.temporary({lines, attention.rows()}, mx::float32);
  encode_attention(encoder, attention, outputs[3], &logits);
  encode_ledger(encoder, update, entries, &logits, attention.group(), outputs);
}

} // namespace h2o::metal

#endif
