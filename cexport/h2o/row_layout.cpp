#include "row_layout.h"

#include <cstring>
#include <vector>

#include "checks.h"
#include "cpu_attention.h"
#include "mlx/ops.h"

namespace h2o {

namespace {

int64_t size_of(cpu::Element element) {
  return element == cpu::Element::float32 ? 4 : 2;
}

/// Bits per group of elements, including scale and bias: a whole number, unlike the bits
/// per element.
int64_t group_bits(int bits, int group_size, cpu::Element element) {
  return bits == 16 ? 8 * size_of(element) * group_size
                    : int64_t(bits) * group_size + 2 * 8 * size_of(element);
}

constexpr int sign_modulus = 2053; // a prime whose signs have no large Hadamard coefficient

/// The sign, 1 or -1, of each element of a vector.
mx::array rotation_signs(int dim) {
  static const auto is_square = [] {
    std::vector<bool> squares(sign_modulus);
    for (int root = 0; root < sign_modulus; ++root) {
      squares[root * root % sign_modulus] = true;
    }
    return squares;
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

/// A vector without elements is returned unchanged, because MLX's transform refuses it.
bool is_rotated(const mx::array& vectors, const RowFormat& format) {
  return format.rotated && vectors.size() > 0;
}

} // namespace

int64_t VectorLayout::word_bytes() const {
  return bits == 16 ? dim * size_of(element) : int64_t(dim) * bits / 8;
}

int64_t VectorLayout::scale_bytes() const {
  return bits == 16 ? 0 : dim / group_size * size_of(element);
}

int64_t VectorLayout::bytes() const {
  return word_bytes() + 2 * scale_bytes();
}

int64_t VectorLayout::scales() const {
  return start + word_bytes();
}

int64_t VectorLayout::biases() const {
  return scales() + scale_bytes();
}

cpu::RowsView VectorLayout::view(const char* row, int64_t stride) const {
  const char* words = row + start;
  if (bits == 16) {
    return {words, element, stride};
  }
  cpu::Packing packing{bits,           group_size, element, row + scales(),
                       row + biases(), stride,     stride};
  return {words, element, stride, packing};
}

void VectorLayout::store(
    cpu::RowsView vector, char* row, std::vector<float>& scratch) const {
  if (bits == 16 && vector.element == element && vector.packing.bits == 16) {
    std::memcpy(row + start, vector.data, word_bytes());
    return;
  }
  const int groups = bits == 16 ? 0 : dim / group_size;
  scratch.resize(dim + 2 * groups);
  float* values = scratch.data();
  cpu::kernels().to_float32(vector, 1, dim, values, dim);
  if (bits == 16) {
    cpu::kernels().from_float32(values, dim, element, row + start);
    return;
  }
  float* scales = values + dim;
  float* biases = scales + groups;
  cpu::kernels().quantize_vector(
      values, dim, bits, group_size, reinterpret_cast<uint8_t*>(row + start), scales,
      biases);
  cpu::kernels().from_float32(scales, groups, element, row + this->scales());
  cpu::kernels().from_float32(biases, groups, element, row + this->biases());
}

void VectorLayout::store_rounded(
    cpu::RowsView vector,
    char* row,
    std::vector<float>& rounded,
    std::vector<float>& scratch) const {
  rounded.resize(2 * dim);
  float* wide = rounded.data() + dim;
  cpu::kernels().to_float32(vector, 1, dim, wide, dim);
  cpu::kernels().from_float32(wide, dim, element, rounded.data());
  store({rounded.data(), element, 0}, row, scratch);
}

void move_row(
    const RowLayout& from_layout,
    const char* from,
    const RowLayout& to_layout,
    char* to,
    std::vector<float>& rounded,
    std::vector<float>& scratch) {
  if (from_layout.key.bits == to_layout.key.bits) {
    std::memcpy(to, from, from_layout.bytes());
    return;
  }
  to_layout.key.store_rounded(from_layout.key.view(from, 0), to, rounded, scratch);
  to_layout.value.store_rounded(from_layout.value.view(from, 0), to, rounded, scratch);
}

bool share_rows(const mx::array& from, mx::array& to) {
  const bool fits = from.shape() == to.shape() && from.flags().row_contiguous;
  if (fits) {
    to.copy_shared_buffer(from);
  }
  return fits;
}

void copy_rows(const mx::array& from, int length, mx::array& to) {
  const size_t row_bytes = size_t(to.shape(3)) * to.itemsize();
  for (int b = 0; b < to.shape(0); ++b) {
    for (int h = 0; h < to.shape(1); ++h) {
      char* start = to.data<char>() + size_t(b * to.shape(1) + h) * to.shape(2) * row_bytes;
      for (int n = 0; n < length; ++n) {
        cpu::copy_vector(from, b, h, n, start + n * row_bytes);
      }
    }
  }
}

mx::Dtype rows_dtype(const RowLayout& layout, mx::Dtype dtype) {
  return layout.key.bits == 16 ? dtype : mx::uint32;
}

int row_width(const RowLayout& layout, mx::Dtype dtype) {
  return int(layout.bytes() / int64_t(mx::size_of(dtype)));
}

mx::Dtype vectors_dtype(const Rows& rows, const RowFormat& format) {
  return format.is_all_dense() ? rows.pool.dtype() : format.dtype;
}

namespace {

RowLayout make_layout(
    const char* function,
    const RowFormat& format,
    int64_t key_dim,
    int64_t value_dim,
    mx::Dtype dtype) {
  cpu::Element element = cpu::element_of(dtype);
  if (!is_supported(dtype)) {
    refuse(function, "rows has dtype ", dtype, "; expected float32, float16 or bfloat16.");
  }
  for (auto [name, dim] : {std::pair{"keys", key_dim}, std::pair{"values", value_dim}}) {
    check_head_dim(function, name, dim);
  }
  if (!format.is_dense()) {
    for (auto [name, dim] : {std::pair{"keys", key_dim}, std::pair{"values", value_dim}}) {
      if (dim % format.group_size != 0) {
        refuse(
            function, name, " has head dim ", dim, "; expected a multiple of group_size ",
            format.group_size, ".");
      }
    }
  }
  VectorLayout key{int(key_dim), format.key_bits, format.group_size, element, 0};
  VectorLayout value{
      int(value_dim), format.value_bits, format.group_size, element, key.bytes()};
  return {key, value};
}

RowLayout layout_of(
    const char* function, const RowFormat& format, const mx::array& rows, int key_dim) {
  const mx::Dtype dtype = format.is_dense() ? rows.dtype() : format.dtype;
  if (!format.is_dense()) {
    check_head_dim(function, "keys", key_dim);
  }
  const int64_t value_dim = value_dim_of(format, dtype, rows.shape(3), key_dim);
  if (!format.is_dense() && value_dim == 0) {
    refuse(
        function, "rows has ", rows.shape(3), " words per row, which does not fit keys of ",
        key_dim, " at ", format.key_bits, " bits and values at ", format.value_bits,
        " in groups of ", format.group_size, ".");
  }
  return make_layout(function, format, key_dim, value_dim, dtype);
}

} // namespace

int64_t value_dim_of(const RowFormat& format, mx::Dtype dtype, int width, int key_dim) {
  if (format.is_dense()) {
    return int64_t(width) - key_dim;
  }
  const cpu::Element element = cpu::element_of(dtype);
  const VectorLayout key{key_dim, format.key_bits, format.group_size, element, 0};
  const int64_t bits = 8 * (int64_t(width) * 4 - key.bytes());
  const int64_t group = group_bits(format.value_bits, format.group_size, element);
  return bits > 0 && bits % group == 0 ? bits / group * format.group_size : 0;
}

Layouts make_layouts(
    const char* function,
    const RowFormat& format,
    int key_dim,
    int value_dim,
    mx::Dtype dtype) {
  Layouts layouts{make_layout(function, format, key_dim, value_dim, dtype), std::nullopt};
  if (format.has_ring()) {
    layouts.ring = make_layout(function, format.ring(), key_dim, value_dim, dtype);
  }
  return layouts;
}

Layouts layouts_of(
    const char* function, const RowFormat& format, const Rows& rows, int key_dim) {
  const RowLayout pool = layout_of(function, format, rows.pool, key_dim);
  if (!format.has_ring()) {
    return {pool, std::nullopt};
  }
  const auto dtype = vectors_dtype(rows, format);
  const Layouts layouts = make_layouts(function, format, key_dim, pool.value.dim, dtype);
  const int width = row_width(*layouts.ring, rows_dtype(*layouts.ring, dtype));
  if (rows.ring->shape(3) != width) {
    refuse(
        function, "ring has ", rows.ring->shape(3), " elements per row; keys of ", key_dim,
        " and values of ", pool.value.dim, ", which the pool has, need ", width, ".");
  }
  return layouts;
}

mx::array sliced(const mx::array& a, int axis, int begin, int end, mx::StreamOrDevice s) {
  mx::Shape start(a.ndim(), 0), stop = a.shape();
  start[axis] = begin;
  stop[axis] = end;
  return mx::slice(a, start, stop, s);
}

mx::array packed_rows(
    const mx::array& keys,
    const mx::array& values,
    const RowFormat& format,
    mx::StreamOrDevice s) {
  if (format.is_dense()) {
    return mx::concatenate({keys, values}, 3, s);
  }
  std::vector<mx::array> parts;
  for (auto [a, bits] : {std::pair{keys, format.key_bits}, {values, format.value_bits}}) {
    auto triple = mx::quantize(a, format.group_size, bits, "affine", std::nullopt, s);
    parts.push_back(triple[0]);
    auto scales = mx::concatenate({triple[1], triple[2]}, 3, s);
    parts.push_back(mx::view(mx::contiguous(scales, false, s), mx::uint32, s));
  }
  return mx::concatenate(parts, 3, s);
}

mx::array unpacked(
    const mx::array& rows,
    const VectorLayout& vector,
    const RowFormat& format,
    mx::Dtype dtype,
    mx::StreamOrDevice s) {
  const int64_t item = mx::size_of(rows.dtype());
  auto columns = [&](int64_t begin, int64_t end) {
    return sliced(rows, 3, int(begin / item), int(end / item), s);
  };
  const int64_t end = vector.start + vector.bytes();
  if (format.is_dense()) {
    return columns(vector.start, end);
  }
  const auto scales = columns(vector.scales(), end);
  auto both = mx::view(mx::contiguous(scales, false, s), format.dtype, s);
  both = mx::astype(both, dtype, s);
  auto halves = mx::split(both, 2, 3, s);
  return mx::dequantize(
      columns(vector.start, vector.scales()), halves[0], halves[1], vector.group_size,
      vector.bits, "affine", std::nullopt, std::nullopt, s);
}

std::pair<mx::array, mx::array> unpacked_rows(
    const mx::array& rows,
    const RowFormat& format,
    int key_dim,
    mx::Dtype dtype,
    mx::StreamOrDevice s) {
  const RowLayout layout = layout_of("rows", format, rows, key_dim);
  return {
      unpacked(rows, layout.key, format, dtype, s),
      unpacked(rows, layout.value, format, dtype, s)};
}

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
