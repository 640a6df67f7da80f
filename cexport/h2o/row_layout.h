#pragma once

#include "functions.h"
#include "kernels.h"

/// How a token's key and value lie side by side in one row of the buffer: as they are,
/// or quantized as words, scales and biases (the key's, then the value's).
namespace h2o {

/// One vector of a row.
struct VectorLayout {
  int dim;
  int bits; // 16: as it is
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

  /// Stores `vector` in `row`, quantizing it. `scratch` is for the caller to keep.
  void store(cpu::RowsView vector, char* row, std::vector<float>& scratch) const;
};

struct RowLayout {
  VectorLayout key;
  VectorLayout value;

  int64_t bytes() const {
    return key.bytes() + value.bytes();
  }
};

/// How the rows of a cache lie in its pool and, if there is one, its ring.
struct Layouts {
  RowLayout pool;
  std::optional<RowLayout> ring;

  const RowLayout& newest() const { // of the buffer that new tokens are written to
    return ring ? *ring : pool;
  }
};

/// Stores the row at `from` as the row at `to`, quantizing anew where the layouts differ.
void move_row(
    const RowLayout& from_layout,
    const char* from,
    const RowLayout& to_layout,
    char* to,
    std::vector<float>& widened,
    std::vector<float>& scratch);

/// Makes `to` the very buffer of `from` where that can be: same shape, row by row. The
/// caller's promise (see cache_write) replaces MLX's donation, which would never apply: the
/// step that was just queued still holds its input.
bool share_rows(const mx::array& from, mx::array& to);

/// Copies the first `length` rows of every head into another buffer.
void copy_rows(const mx::array& from, int length, mx::array& to);

/// The dtype of a buffer of such rows: that of the vectors, or uint32 for quantized rows.
mx::Dtype rows_dtype(const RowLayout& layout, mx::Dtype dtype);

/// Elements of such a row in a buffer of `dtype`.
int row_width(const RowLayout& layout, mx::Dtype dtype);

/// The dtype of keys and values in rows: their own where all are dense, else the format's.
mx::Dtype vectors_dtype(const Rows& rows, const RowFormat& format);

/// The layouts of keys of `key_dim` and values of `value_dim` in `dtype`; throws
/// std::invalid_argument where a head dim is no multiple of the group or out of range.
Layouts make_layouts(
    const char* function,
    const RowFormat& format,
    int key_dim,
    int value_dim,
    mx::Dtype dtype);

/// The same for the rows of a cache, which check_rows has checked. The value dim follows from
/// the pool's width, and the ring's must be that of the same keys and values.
Layouts layouts_of(
    const char* function, const RowFormat& format, const Rows& rows, int key_dim);

/// A pool and, if there is a second, a ring.
template <class Iterator>
Rows rows_from(Iterator first, Iterator last) {
  Rows rows{*first};
  if (last - first == 2) {
    rows.ring = *(first + 1);
  }
  return rows;
}

/// The first `count` rows of a buffer [B, Hkv, capacity, row].
mx::array first_rows(const mx::array& rows, int count, mx::StreamOrDevice s);

/// keys [B, Hkv, L, Dk] and values [B, Hkv, L, Dv] as rows, in MLX operations.
mx::array packed_rows(
    const mx::array& keys,
    const mx::array& values,
    const RowFormat& format,
    mx::StreamOrDevice s);

/// The keys or the values of rows, in MLX operations: dense ones as they are, quantized ones
/// widened to `dtype`. What is behind `vector` in a row need not be there.
mx::array unpacked(
    const mx::array& rows,
    const VectorLayout& vector,
    const RowFormat& format,
    mx::Dtype dtype,
    mx::StreamOrDevice s);

/// Keys and values of rows, as `unpacked` gives them.
std::pair<mx::array, mx::array> unpacked_rows(
    const mx::array& rows,
    const RowFormat& format,
    int key_dim,
    mx::Dtype dtype,
    mx::StreamOrDevice s);

// The rotation of keys and values that are quantized after it, and of the queries that meet
// them.
//
// A few large elements of a vector set the scale of their whole group, and 4 bits then tell
// the small ones no longer apart. A rotation spreads each element over all of them, and
// leaves every product of a query and a key as it is (QuaRot, arXiv 2404.00456). Element i of
// a vector is negated where i + 1 is not a square modulo 2053; then each block of elements,
// as long as the largest power of two that divides the head dim, is multiplied with the
// orthonormal Hadamard matrix of Sylvester's order.

/// Keys, values or queries [..., D] as a cache of this format computes with them: rotated in
/// float32, in the dtype in which they came, where its rows are rotated.
mx::array as_stored(
    const mx::array& vectors, const RowFormat& format, mx::StreamOrDevice s);

/// The vectors, or the attention's output, that `as_stored` or such rows made these of.
mx::array as_given(const mx::array& vectors, const RowFormat& format, mx::StreamOrDevice s);

} // namespace h2o
