#include "../allocated.h"
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

void carry_over(
    mx::Stream stream, const mx::array& from, int length, bool share, mx::array& to) {
  if (share && share_rows(from, to)) {
    return;
  }
  to.set_data(allocated(to));
  Encoder(stream).copy_rows(from, length, to);
}

void write(
    mx::Stream stream,
    const CacheStep& step,
    const Layouts& layouts,
    const NewTokens& tokens,
    std::vector<mx::array>& buffers) {
  Encoder encoder(stream);
  const auto& [keys, values, given_victim] = tokens;
  const auto victim = encoder.contiguous(given_victim);
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
  encoder->set_input_array(victim, 2);
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

} // namespace h2o::metal

#endif
