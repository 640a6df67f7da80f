#include "build.h"
#if H2O_METAL

#include <algorithm>

#include "encode.h"
#include "encoder.h"
#include "mlx/allocator.h"

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
  to.set_data(mx::allocator::malloc(to.nbytes()));
  Encoder(stream).copy_rows(from, length, to);
}

void write(mx::Stream stream, const Write& write, mx::array& pool, mx::array* ring) {
  Encoder encoder(stream);
  const auto victim = encoder.contiguous(write.victim);
  H2OWrite parameters{
      write.keys.shape(1),
      write.first_row,
      write.leaves,
      write.pool_used,
      write.pool_size,
      tokens_of(write.keys),
      tokens_of(write.values),
      rows_of(pool, write.pool_layout),
      {}};
  Constants constants;
  constants.set(constant::key_bits, int32_t(write.pool_layout.key.bits))
      .set(constant::value_bits, int32_t(write.pool_layout.value.bits))
      .set(constant::group_size, int32_t(write.pool_layout.key.group_size))
      .set(
          constant::ring_bits,
          int32_t(write.ring_layout ? write.ring_layout->key.bits : 0));
  encoder.use("h2o_write_row_" + type_name(write.keys.dtype()), constants);
  encoder->set_input_array(write.keys, 0);
  encoder->set_input_array(write.values, 1);
  encoder->set_input_array(victim, 2);
  encoder->set_output_array(pool, 3);
  if (write.ring_layout) {
    parameters.ring = rows_of(*ring, *write.ring_layout);
    encoder->set_output_array(*ring, 4);
  }
  encoder->set_bytes(parameters, 5);
  const int groups = (write.keys.shape(3) + write.values.shape(3)) / 64;
  encoder.dispatch(
      MTL::Size(write.keys.shape(0) * write.keys.shape(1), write.keys.shape(2), 1),
      MTL::Size(32 * std::clamp(groups, 1, 8), 1, 1));
}

} // namespace h2o::metal

#endif
