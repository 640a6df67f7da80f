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

#include "kernels_rows_impl.h"

#include "kernels_policy_impl.h"
#include "kernels_products_impl.h"
#include "kernels_quantize_impl.h"

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
