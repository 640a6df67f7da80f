#include "build.h"
#if H2O_METAL

#include <algorithm>

#include "attention.h"
#include "mlx/allocator.h"
#include "policy_parameters.h"

namespace h2o::metal {

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

H2OLedger parameters_of(const Step& step, const mx::array& keys, int group) {
  const int64_t item = int64_t(keys.itemsize());
  H2OLedger p{};
  p.kv_heads = keys.shape(1);
  p.group = group;
  p.tokens = step.tokens;
  p.rows = step.rows;
  p.size = step.config.max_size;
  p.offset = step.offset;
  p.first_row = step.first_row;
  p.leaves = step.leaves;
  p.pool_used = step.pool_used;
  p.pool_rows = step.has_ring ? step.pool_rows : step.rows;
  p.pool_size = step.has_ring ? step.pool_size : step.config.max_size;
  p.observed_from = std::max(0, step.tokens - step.config.observation_window);
  p.chooses = step.chooses;
  p.recent_from = step.offset + step.tokens + 1 - step.config.recent_budget;
  p.pin_count = int32_t(step.config.pinned.size());
  p.policy = policy_parameters(step.config);
  if (step.mask) {
    p.mask_batch = step.mask->strides(0);
    p.mask_head = step.mask->strides(1);
    p.mask_query = step.mask->strides(2);
    p.mask_row = step.mask->strides(3);
  }
  p.key_head = (keys.shape(1) == 1 ? keys.strides(0) : keys.strides(1)) * item;
  p.key_row = keys.strides(2) * item;
  p.key = layout_parameters(step.key);
  return p;
}

void encode_ledger(
    Encoder& encoder,
    const Step& step,
    const std::vector<mx::array>& ledger,
    const mx::array* logits,
    int group,
    std::vector<mx::array>& outputs) {
  const auto keys = encoder.contiguous(step.new_keys);
  const auto sinks = step.attention ? step.attention->sinks : std::nullopt;
  const auto& pinned = step.config.pinned;
  Constants constants;
  constants.set(constant::has_sinks, sinks.has_value())
      .set(constant::key_bits, int32_t(step.has_ring ? 16 : step.key.bits))
      .set(constant::group_size, int32_t(step.key.group_size))
      .set(constant::ring_bits, int32_t(step.has_ring ? step.key.bits : 0))
      .set(constant::score, score_number(step.config.score))
      .set(constant::mask_kind, mask_kind(step.mask))
      .set(constant::observes, logits != nullptr)
      .set(constant::has_pins, !pinned.empty());
  encoder.use("h2o_update_ledger_" + type_name(step.dtype), constants);
  encoder->set_input_array(keys, 0);
  if (logits != nullptr) {
    encoder->set_input_array(*logits, 1);
  }
  for (int i = 0; i < 5; ++i) {
    encoder->set_input_array(ledger[i], 2 + i);
  }
  for (int i = 0; i < 5; ++i) {
    encoder->set_output_array(outputs[i], 7 + i);
  }
  encoder->set_bytes(parameters_of(step, keys, group), 12);
  if (step.mask) {
    encoder->set_input_array(*step.mask, 13);
  }
  if (sinks) {
    encoder->set_input_array(*sinks, 14);
  }
  if (!pinned.empty()) {
    std::vector<int32_t> pins;
    for (auto [begin, end] : pinned) {
      pins.push_back(begin);
      pins.push_back(end);
    }
    mx::array table(pins.data(), {int(pins.size())}, mx::int32);
    encoder.keep(table);
    encoder->set_input_array(table, 15);
  }
  const int wanted = (step.config.max_size + 31) / 32 * 32;
  const int threads = std::min(std::clamp(wanted, 256, 1024), encoder.max_threads());
  encoder.dispatch(
      MTL::Size(keys.shape(0) * keys.shape(1), 1, 1), MTL::Size(threads, 1, 1));
}

} // namespace

void step(
    mx::Stream stream,
    const Step& step,
    const std::vector<mx::array>& ledger,
    std::vector<mx::array>& outputs) {
  Encoder encoder(stream);
  std::vector<mx::array> entries;
  for (const auto& a : ledger) {
    entries.push_back(encoder.contiguous(a));
  }
  if (!step.attention) {
    encode_ledger(encoder, step, entries, nullptr, 1, outputs);
    return;
  }
  const auto& queries = step.attention->queries;
  const int lines = queries.shape(0) * queries.shape(1) * queries.shape(2);
  auto logits = encoder.temporary({lines, step.rows}, mx::float32);
  encode_attention(encoder, *step.attention, outputs[5], &logits);
  const int group = queries.shape(1) / step.attention->kv_heads;
  encode_ledger(encoder, step, entries, &logits, group, outputs);
}

} // namespace h2o::metal

#endif
