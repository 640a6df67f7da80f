#pragma once

#include "functions.h"

/// The rotation of keys and values that are quantized after it, and of the queries that meet
/// them.
///
/// A few large elements of a vector set the scale of their whole group, and 4 bits then tell
/// the small ones no longer apart. A rotation spreads each element over all of them, and
/// leaves every product of a query and a key as it is (QuaRot, arXiv 2404.00456). Element i of
/// a vector is negated where i + 1 is not a square modulo 2053; then each block of elements,
/// as long as the largest power of two that divides the head dim, is multiplied with the
/// orthonormal Hadamard matrix of Sylvester's order.
namespace h2o {

/// Keys, values or queries [..., D] as a cache of this format computes with them: rotated in
/// float32, in the dtype in which they came, where its rows are rotated.
mx::array as_stored(
    const mx::array& vectors, const RowFormat& format, mx::StreamOrDevice s);

/// The vectors, or the attention's output, that `as_stored` or such rows made these of.
mx::array as_given(const mx::array& vectors, const RowFormat& format, mx::StreamOrDevice s);

} // namespace h2o
