"""The reference's buffers of rows: they grow, and pack a token's key and value side by side.

Some formats rotate the vectors before packing; cexport/h2o/row_layout.h says why.
"""

from __future__ import annotations

import mlx.core as mx

from h2o_py.rows import RowFormat

_GROWTH_STEP = 256
_SIGN_MODULUS = 2053


def written(
    rows: mx.array, tokens: mx.array, row: mx.array | int, used: int, most: int
) -> mx.array:
    """Write tokens into `rows` from `row` on.

    used: rows in use, with the new tokens. most: rows that the buffer keeps after eviction.
    """
    if tokens.shape[2] == 1:
        return put(grown(rows, used, most), tokens, row)
    capacity = _capacity(rows.shape[2], used, most)
    spare = mx.zeros((*rows.shape[:2], capacity - used, rows.shape[3]), rows.dtype)
    return mx.concatenate([rows[:, :, :row], tokens, spare], axis=2)


def put(rows: mx.array, token: mx.array, row: mx.array | int) -> mx.array:
    """Replace one row of `rows` by a token [B, Hkv, 1, R]."""
    is_row = mx.equal(mx.arange(rows.shape[2]), row)
    return mx.where(is_row[..., None], token, rows)


def grown(rows: mx.array, least: int, most: int) -> mx.array:
    """Extend `rows` with empty rows to at least `least` rows."""
    batch, heads, capacity, width = rows.shape
    spare = _capacity(capacity, least, most) - capacity
    if spare == 0:
        return rows
    return mx.concatenate([rows, mx.zeros((batch, heads, spare, width), rows.dtype)], axis=2)


def _capacity(capacity: int, least: int, most: int) -> int:
    """The size that a buffer grows to: up to `most` in steps, above it to exactly `least`."""
    if least <= capacity:
        return capacity
    rounded = -(-least // _GROWTH_STEP) * _GROWTH_STEP
    return min(rounded, most) if least <= most else least


def converted(rows: mx.array, key_dim: int, old: RowFormat, new: RowFormat) -> mx.array:
    """Convert rows from one format to another; equal formats leave them unchanged."""
    if old == new:
        return rows
    keys, values = wide(rows, rows.shape[2], key_dim, old)
    return packed(keys.astype(new.dtype), values.astype(new.dtype), new)


def wide(
    rows: mx.array, length: int, key_dim: int, row_format: RowFormat
) -> tuple[mx.array, mx.array]:
    """Keys and values of the first `length` rows; quantized rows give float32."""
    rows = rows[:, :, :length]
    if row_format.is_dense:
        return rows[..., :key_dim], rows[..., key_dim:]
    key_words = key_dim * row_format.key_bits // 32
    key_end = key_words + 2 * key_dim // row_format.group_size * row_format.dtype.size // 4
    group_words = row_format.group_size * row_format.value_bits // 32
    groups = (rows.shape[3] - key_end) // (group_words + 2 * row_format.dtype.size // 4)
    value_words = key_end + groups * group_words
    return (
        _unpacked(rows, 0, key_words, key_end, row_format, row_format.key_bits),
        _unpacked(rows, key_end, value_words, rows.shape[3], row_format, row_format.value_bits),
    )


def packed(keys: mx.array, values: mx.array, row_format: RowFormat) -> mx.array:
    """Pack keys and values side by side; if quantized, each as words, scales and biases."""
    if row_format.is_dense:
        return mx.concatenate([keys, values], axis=3)
    parts = []
    for vectors, bits in ((keys, row_format.key_bits), (values, row_format.value_bits)):
        words, scales, biases = mx.quantize(
            vectors.astype(row_format.dtype), group_size=row_format.group_size, bits=bits
        )
        both = mx.contiguous(mx.concatenate([scales, biases], axis=3))
        parts += [words, both.view(mx.uint32)]
    return mx.concatenate(parts, axis=3)


def _unpacked(
    rows: mx.array, begin: int, scales_at: int, end: int, row_format: RowFormat, bits: int
) -> mx.array:
    if rows.shape[2] == 0:  # MLX's functions refuse arrays without rows
        return mx.zeros((*rows.shape[:3], (scales_at - begin) * 32 // bits), mx.float32)
    both = mx.contiguous(rows[..., scales_at:end]).view(row_format.dtype)
    scales, biases = mx.split(both.astype(mx.float32), 2, axis=3)
    return mx.dequantize(
        rows[..., begin:scales_at], scales, biases, group_size=row_format.group_size, bits=bits
    )


def as_stored(vectors: mx.array, row_format: RowFormat) -> mx.array:
    """Return keys, values or queries [..., D] as this format stores them: rotated or not."""
    if not row_format.rotated or vectors.size == 0:
        return vectors
    wide = vectors.astype(mx.float32) * _signs(vectors.shape[-1])
    return _hadamard(wide).astype(vectors.dtype)


def as_given(vectors: mx.array, row_format: RowFormat) -> mx.array:
    """Undo `as_stored`, for vectors or for the output of attention over stored rows."""
    if not row_format.rotated or vectors.size == 0:
        return vectors
    wide = _hadamard(vectors.astype(mx.float32)) * _signs(vectors.shape[-1])
    return wide.astype(vectors.dtype)


def _signs(dim: int) -> mx.array:
    """Float32 [D]: element i is -1 if i + 1 is not a square modulo 2053, and otherwise 1."""
    squares = {root * root % _SIGN_MODULUS for root in range(_SIGN_MODULUS)}
    return mx.array([1.0 if (i + 1) % _SIGN_MODULUS in squares else -1.0 for i in range(dim)])


def _hadamard(vectors: mx.array) -> mx.array:
    """Hadamard-transform each block; its length is the largest power of two that divides D."""
    dim = vectors.shape[-1]
    block = dim & -dim
    blocks = mx.unflatten(vectors, -1, (dim // block, block))
    return mx.hadamard_transform(blocks).flatten(-2)
