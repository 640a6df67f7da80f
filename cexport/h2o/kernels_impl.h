// The kernels of kernels.h for one instruction set. kernels.cpp includes this
// file once per instruction set, with these macros set:
//   H2O_NAMESPACE   where the functions go
//   H2O_TARGET      function attribute that selects the instruction set
//   H2O_LANES       floats in a vector register
//   H2O_BLOCK       rows, or vectors of the output, whose sums are accumulated at once
//   H2O_REGISTER    the assembler's constraint for a vector register
//   H2O_WIDEN_HALF  converts one Float16 to float
//   H2O_STORE_HALF  stores a Vector as H2O_LANES float16 at a pointer
//   H2O_WIDEN_BYTES converts H2O_LANES bytes to a Vector
//   H2O_LOAD_HALF   converts H2O_LANES float16 at a pointer to a Vector
// Blocks are sized so that all accumulators stay in registers.

namespace h2o::cpu::H2O_NAMESPACE {

#define H2O_INLINE H2O_TARGET inline __attribute__((always_inline))

#include "kernels_vector_impl.h"

#include "kernels_dense_impl.h"
#include "kernels_packed_impl.h"
#include "kernels_policy_impl.h"
#include "kernels_quantize_impl.h"

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
  with_type(rows.element, [&](auto type) __attribute__((always_inline)) {
    const auto* data = static_cast<const decltype(type)*>(rows.data);
    const int64_t stride = rows.stride / int64_t(sizeof(type));
    dot_rows_of(queries, heads, data, stride, row_count, dim, out, out_stride);
  });
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
  with_type(rows.element, [&](auto type) __attribute__((always_inline)) {
    const auto* data = static_cast<const decltype(type)*>(rows.data);
    const int64_t stride = rows.stride / int64_t(sizeof(type));
    mix_rows_of(
        weights, heads, weight_stride, data, stride, row_count, dim, accumulate, out);
  });
}

H2O_TARGET void to_float32(
    RowsView rows, int row_count, int dim, float* out, int64_t out_stride) {
  if (rows.packing.bits < 16) {
    return unpack_rows(rows, row_count, dim, out, out_stride);
  }
  with_type(rows.element, [&](auto type) __attribute__((always_inline)) {
    const auto* data = static_cast<const decltype(type)*>(rows.data);
    const int64_t stride = rows.stride / int64_t(sizeof(type));
    to_float32_of(data, stride, row_count, dim, out, out_stride);
  });
}

#undef H2O_INLINE

} // namespace h2o::cpu::H2O_NAMESPACE

// The next instruction set defines its own macros.
#undef H2O_NAMESPACE
#undef H2O_TARGET
#undef H2O_LANES
#undef H2O_REGISTER
#undef H2O_WIDEN_HALF
#undef H2O_WIDEN_BYTES
#undef H2O_STORE_HALF
#undef H2O_BLOCK
#undef H2O_LOAD_HALF
