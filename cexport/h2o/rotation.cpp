#include "rotation.h"

#include <vector>

#include "mlx/ops.h"

namespace h2o {

namespace {

constexpr int sign_modulus = 2053; // a prime whose signs have no large Hadamard coefficient

/// 1 or -1 for each element of a vector.
mx::array rotation_signs(int dim) {
  static const auto is_square = [] {
    std::vector<bool> found(sign_modulus);
    for (int root = 0; root < sign_modulus; ++root) {
      found[root * root % sign_modulus] = true;
    }
    return found;
  }();
  std::vector<float> signs(dim);
  for (int i = 0; i < dim; ++i) {
    signs[i] = is_square[(i + 1) % sign_modulus] ? 1.0f : -1.0f;
  }
  return mx::array(signs.data(), mx::Shape{dim}, mx::float32);
}

mx::array hadamard_blocks(const mx::array& vectors, mx::StreamOrDevice s) {
  const int dim = vectors.shape(-1), block = dim & -dim;
  auto blocks = mx::unflatten(vectors, -1, {dim / block, block}, s);
  return mx::flatten(mx::hadamard_transform(blocks, std::nullopt, s), -2, -1, s);
}

/// A vector without elements is left alone: MLX's transform refuses it.
bool is_rotated(const mx::array& vectors, const RowFormat& format) {
  return format.rotated && vectors.size() > 0;
}

} // namespace

mx::array as_stored(
    const mx::array& vectors, const RowFormat& format, mx::StreamOrDevice s) {
  if (!is_rotated(vectors, format)) {
    return vectors;
  }
  auto wide = mx::astype(vectors, mx::float32, s);
  wide = mx::multiply(wide, rotation_signs(vectors.shape(-1)), s);
  return mx::astype(hadamard_blocks(wide, s), vectors.dtype(), s);
}

mx::array as_given(
    const mx::array& vectors, const RowFormat& format, mx::StreamOrDevice s) {
  if (!is_rotated(vectors, format)) {
    return vectors;
  }
  auto wide = hadamard_blocks(mx::astype(vectors, mx::float32, s), s);
  wide = mx::multiply(wide, rotation_signs(vectors.shape(-1)), s);
  return mx::astype(wide, vectors.dtype(), s);
}

} // namespace h2o
