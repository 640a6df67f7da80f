// The kernels of kernels.h for one instruction set. kernels.cpp includes this
// file once for each, with these macros set:
//   H2O_NAMESPACE   where the functions go
//   H2O_TARGET      function attribute that selects the instruction set
//   H2O_LANES       floats in a vector register
//   H2O_ROW_BLOCK   rows whose dot products are accumulated at once
//   H2O_DIM_BLOCK   vectors of the output that are accumulated at once
//   H2O_REGISTER    the assembler's constraint for a vector register
//   H2O_WIDEN_HALF  what converts one Float16 to float
//   H2O_STORE_HALF  what stores a Vector as H2O_LANES float16 at a pointer
//   H2O_WIDEN_BYTES what converts H2O_LANES bytes to a Vector
//   H2O_LOAD_HALF   what converts H2O_LANES float16 at a pointer to a Vector
// Blocks are sized so that all accumulators stay in registers.

namespace h2o::cpu::H2O_NAMESPACE {

#define H2O_INLINE H2O_TARGET inline __attribute__((always_inline))

#include "kernels_vector_impl.h"

#include "kernels_dense_impl.h"
#include "kernels_packed_impl.h"
#include "kernels_policy_impl.h"
#include "kernels_quantize_impl.h"

template <class T>
H2O_INLINE int64_t elements(int64_t bytes) {
  return bytes / int64_t(sizeof(T));
}

H2O_TARGET void dot_rows(
    const float* queries,
    int heads,
    RowsView rows,
    int row_count,
    int dim,
    float* out,
    int64_t out_stride) {
  if (rows.packing.bits < 16) {
    return dot_packed_rows(queries, heads, rows, row_count, dim, out, out_stride);
  }
  switch (rows.element) {
    case Element::float32:
      return dot_rows_of(
          queries, heads, static_cast<const float*>(rows.data),
          elements<float>(rows.stride), row_count, dim, out, out_stride);
    case Element::float16:
      return dot_rows_of(
          queries, heads, static_cast<const Float16*>(rows.data),
          elements<Float16>(rows.stride), row_count, dim, out, out_stride);
    case Element::bfloat16:
      return dot_bfloat16_rows(
          queries, heads, static_cast<const BFloat16*>(rows.data),
          elements<BFloat16>(rows.stride), row_count, dim, out, out_stride);
  }
}

H2O_TARGET void mix_rows(
    const float* weights,
    int heads,
    int64_t weight_stride,
    RowsView rows,
    int row_count,
    int dim,
    bool accumulate,
    float* out) {
  if (rows.packing.bits < 16) {
    return mix_packed_rows(
        weights, heads, weight_stride, rows, row_count, dim, accumulate, out);
  }
  switch (rows.element) {
    case Element::float32:
      return mix_rows_of(
          weights, heads, weight_stride, static_cast<const float*>(rows.data),
          elements<float>(rows.stride), row_count, dim, accumulate, out);
    case Element::float16:
      return mix_rows_of(
          weights, heads, weight_stride, static_cast<const Float16*>(rows.data),
          elements<Float16>(rows.stride), row_count, dim, accumulate, out);
    case Element::bfloat16:
      return mix_bfloat16_rows(
          weights, heads, weight_stride, static_cast<const BFloat16*>(rows.data),
          elements<BFloat16>(rows.stride), row_count, dim, accumulate, out);
  }
}

H2O_TARGET void to_float32(
    RowsView rows, int row_count, int dim, float* out, int64_t out_stride) {
  if (rows.packing.bits < 16) {
    return unpack_rows(rows, 0, row_count, dim, out, out_stride);
  }
  switch (rows.element) {
    case Element::float32:
      return to_float32_of(
          static_cast<const float*>(rows.data), elements<float>(rows.stride), row_count,
          dim, out, out_stride);
    case Element::float16:
      return to_float32_of(
          static_cast<const Float16*>(rows.data), elements<Float16>(rows.stride), row_count,
          dim, out, out_stride);
    case Element::bfloat16:
      return to_float32_of(
          static_cast<const BFloat16*>(rows.data), elements<BFloat16>(rows.stride),
          row_count, dim, out, out_stride);
  }
}

#undef H2O_INLINE

} // namespace h2o::cpu::H2O_NAMESPACE

// The next set of instructions defines its own.
#undef H2O_NAMESPACE
#undef H2O_TARGET
#undef H2O_LANES
#undef H2O_REGISTER
#undef H2O_WIDEN_HALF
#undef H2O_WIDEN_BYTES
#undef H2O_STORE_HALF
#undef H2O_ROW_BLOCK
#undef H2O_DIM_BLOCK
#undef H2O_LOAD_HALF
