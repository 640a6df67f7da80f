"""Packs keys and values into rows, a token's key and value side by side, and unpacks them.

Some formats rotate the vectors before packing; cexport/h2o/row_layout.h says why.
"""

from __future__ import annotations

import mlx.core as mx

from h2o_py.rows import RowFormat

_SIGN_MODULUS = 2053


def packed(keys: mx.array, values: mx.array, row_format: RowFormat) -> mx.array:
    """Pack keys and values side by side; if quantized, each as words, scales and biases."""
    keys, values = keys.astype(row_format.dtype), values.astype(row_format.dtype)
    if row_format.is_dense:
        return mx.concatenate([keys, values], axis=3)
    parts = []
    for vectors, bits in ((keys, row_format.key_bits), (values, row_format.value_bits)):
        words, scales, biases = mx.quantize(
            vectors, group_size=row_format.group_size, bits=bits
        )
        both = mx.contiguous(mx.concatenate([scales, biases], axis=3))
        parts += [words, both.view(mx.uint32)]
    return mx.concatenate(parts, axis=3)


def unpacked(rows: mx.array, key_dim: int, row_format: RowFormat) -> tuple[mx.array, mx.array]:
    """Keys and values of rows [B, Hkv, N, R], in float32."""
    if row_format.is_dense:
        rows = rows.astype(mx.float32)
        return rows[..., :key_dim], rows[..., key_dim:]
    key_words = key_dim * row_format.key_bits // 32
    key_end = key_words + 2 * key_dim // row_format.group_size * row_format.dtype.size // 4
    group_words = row_format.group_size * row_format.value_bits // 32
    groups = (rows.shape[3] - key_end) // (group_words + 2 * row_format.dtype.size // 4)
    value_words = key_end + groups * group_words
    return (
        _dequantized(rows, 0, key_words, key_end, row_format, row_format.key_bits),
        _dequantized(
            rows, key_end, value_words, rows.shape[3], row_format, row_format.value_bits
        ),
    )


def _dequantized(
    rows: mx.array, begin: int, scales_at: int, end: int, row_format: RowFormat, bits: int
) -> mx.array:
    if rows.shape[2] == 0:  # MLX's functions refuse arrays without rows
        return mx.zeros((*rows.shape[:3], (scales_at - begin) * 32 // bits), mx.float32)
    both = mx.contiguous(rows[..., scales_at:end]).view(row_format.dtype)
    scales, biases = mx.split(both.astype(mx.float32), 2, axis=3)
    return mx.dequantize(
        rows[..., begin:scales_at], scales, biases, group_size=row_format.group_size, bits=bits
    )


def separated(rows: mx.array, key_dim: int, row_format: RowFormat) -> list[mx.array]:
    """The packed keys and the packed values of rows."""
    end = key_dim
    if not row_format.is_dense:
        groups = key_dim // row_format.group_size
        end = key_dim * row_format.key_bits // 32 + groups * row_format.dtype.size // 2
    return [rows[..., :end], rows[..., end:]]


def dim_of(packed_keys: mx.array, row_format: RowFormat) -> int:
    """The head dim of packed keys."""
    width = int(packed_keys.shape[3])
    if row_format.is_dense:
        return width
    group = row_format.group_size * row_format.key_bits // 32 + row_format.dtype.size // 2
    return width // group * row_format.group_size


def converted(rows: mx.array, key_dim: int, old: RowFormat, new: RowFormat) -> mx.array:
    """Convert rows from one format to another; equal formats leave them unchanged."""
    return rows if old == new else packed(*unpacked(rows, key_dim, old), new)


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
