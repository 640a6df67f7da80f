#pragma once

#include "functions.h"
#include "kernels.h"

/// The layout of a row of the buffer, which holds a token's key and value side by side:
/// as numbers, or quantized as words, scales and biases of the key and then of the value.
namespace h2o {

/// One vector of a row.
struct VectorLayout {
  int dim;
  int bits; // 16: not quantized
  int group_size;
  cpu::Element element; // of the vector, or of its scales and biases
  int64_t start;        // bytes from the start of the row

  int64_t word_bytes() const;
  int64_t scale_bytes() const;
  int64_t bytes() const;

  /// Where scales and biases begin, in bytes from the start of the row.
  int64_t scales() const;
  int64_t biases() const;

  /// The vectors of all rows from `row` on, `stride` bytes apart.
  cpu::RowsView view(const char* row, int64_t stride) const;

  /// Stores `vector` in `row`, quantized if the layout says so. `scratch` is a buffer
  /// that the caller keeps between calls.
  void store(cpu::RowsView vector, char* row, std::vector<float>& scratch) const;

  /// Does the same after rounding `vector` to the dtype of keys and values, in which new
  /// tokens arrive.
  void store_rounded(
      cpu::RowsView vector,
      char* row,
      std::vector<float>& rounded,
      std::vector<float>& scratch) const;
};

struct RowLayout {
  VectorLayout key;
  VectorLayout value;

  int64_t bytes() const {
    return key.bytes() + value.bytes();
  }
};

/// The layouts of a cache's pool and, if there is one, of its ring.
struct Layouts {
  RowLayout pool;
  std::optional<RowLayout> ring;

  const RowLayout& newest() const { // layout of the buffer for new tokens
    return ring ? *ring : pool;
  }
};

/// Copies the row at `from` to `to`; quantizes it again if the layouts differ.
void move_row(
    const RowLayout& from_layout,
    const char* from,
    const RowLayout& to_layout,
    char* to,
    std::vector<float>& rounded,
    std::vector<float>& scratch);

/// Lets `to` use the buffer of `from` if shapes are equal and rows are contiguous. MLX's
/// own donation would never apply, because the step that was just queued still holds its
/// input. The caller's promise (see cache_write) makes this safe.
bool share_rows(const mx::array& from, mx::array& to);

/// Copies the first `length` rows of every head into another buffer.
void copy_rows(const mx::array& from, int length, mx::array& to);

/// The dtype of a buffer of rows with this layout: uint32 for quantized rows, otherwise
/// `dtype`, the dtype of the vectors.
mx::Dtype rows_dtype(const RowLayout& layout, mx::Dtype dtype);

/// Elements of a row with this layout in a buffer of `dtype`.
int row_width(const RowLayout& layout, mx::Dtype dtype);

/// The dtype of keys and values in rows: the dtype of the rows if all are dense, else the
/// dtype of the format.
mx::Dtype vectors_dtype(const Rows& rows, const RowFormat& format);

/// The layouts of keys of `key_dim` and values of `value_dim` in `dtype`. Throws
/// std::invalid_argument if a head dim is not a multiple of the group size, or out of
/// range.
Layouts make_layouts(
    const char* function,
    const RowFormat& format,
    int key_dim,
    int value_dim,
    mx::Dtype dtype);

/// The same for rows of a cache that check_rows has checked. The value dim is computed
/// from the pool's width; the ring's width must fit the same keys and values.
Layouts layouts_of(
    const char* function, const RowFormat& format, const Rows& rows, int key_dim);

/// The value's head dim in rows of `width` elements with keys of `key_dim`; 0 or less if no
/// value fits.
int64_t value_dim_of(const RowFormat& format, mx::Dtype dtype, int width, int key_dim);

/// Makes Rows from one or two buffers: the pool and, if there is a second one, the ring.
template <class Iterator>
Rows rows_from(Iterator first, Iterator last) {
  Rows rows{*first};
  if (last - first == 2) {
    rows.ring = *(first + 1);
  }
  return rows;
}

/// The elements [begin, end) of an array along one axis.
mx::array sliced(const mx::array& a, int axis, int begin, int end, mx::StreamOrDevice s);

/// Packs keys [B, Hkv, L, Dk] and values [B, Hkv, L, Dv] into rows, with MLX operations.
mx::array packed_rows(
    const mx::array& keys,
    const mx::array& values,
    const RowFormat& format,
    mx::StreamOrDevice s);

/// Unpacks the keys or the values of rows with MLX operations; quantized ones are widened
/// to `dtype`. A row may end after `vector`.
mx::array unpacked(
    const mx::array& rows,
    const VectorLayout& vector,
    const RowFormat& format,
    mx::Dtype dtype,
    mx::StreamOrDevice s);

/// Unpacks keys and values of rows, as `unpacked` does.
std::pair<mx::array, mx::array> unpacked_rows(
    const mx::array& rows,
    const RowFormat& format,
    int key_dim,
    mx::Dtype dtype,
    mx::StreamOrDevice s);

// The rotation of keys and values before they are quantized, and of queries.
//
// A few large elements of a vector set the scale of their whole group, so that 4 bits
// cannot distinguish the small ones. A rotation spreads each element over all of them,
// and does not change any product of a query and a key (QuaRot, arXiv 2404.00456).
// Element i of a vector is negated if i + 1 is not a square modulo 2053. Then each block
// of elements, as long as the largest power of two that divides the head dim, is
// multiplied by the orthonormal Hadamard matrix in Sylvester's order.

/// If rows of this format are rotated, rotates keys, values or queries [..., D] in float32
/// and returns them in their dtype. Otherwise returns them unchanged.
mx::array as_stored(
    const mx::array& vectors, const RowFormat& format, mx::StreamOrDevice s);

/// Reverses `as_stored`, for vectors or for the output of attention.
mx::array as_given(const mx::array& vectors, const RowFormat& format, mx::StreamOrDevice s);

} // namespace h2o
