"""The rotation of rows that are quantized after it; cexport/h2o/rotation.h says why."""

from __future__ import annotations

import mlx.core as mx

from h2o_py.row_format import RowFormat

_SIGN_MODULUS = 2053


def as_stored(vectors: mx.array, row_format: RowFormat) -> mx.array:
    """Keys, values or queries [..., D] as a cache of this format computes with them."""
    if not row_format.rotated or vectors.size == 0:
        return vectors
    wide = vectors.astype(mx.float32) * _signs(vectors.shape[-1])
    return _hadamard(wide).astype(vectors.dtype)


def as_given(vectors: mx.array, row_format: RowFormat) -> mx.array:
    """What `as_stored` made these of, or the output of attention over such rows."""
    if not row_format.rotated or vectors.size == 0:
        return vectors
    wide = _hadamard(vectors.astype(mx.float32)) * _signs(vectors.shape[-1])
    return wide.astype(vectors.dtype)


def _signs(dim: int) -> mx.array:
    """Float32 [D]: -1 where i + 1 is not a square modulo 2053."""
    squares = {root * root % _SIGN_MODULUS for root in range(_SIGN_MODULUS)}
    return mx.array([1.0 if (i + 1) % _SIGN_MODULUS in squares else -1.0 for i in range(dim)])


def _hadamard(vectors: mx.array) -> mx.array:
    """Each block, as long as the largest power of two that divides D, transformed."""
    dim = vectors.shape[-1]
    block = dim & -dim
    blocks = mx.unflatten(vectors, -1, (dim // block, block))
    return mx.hadamard_transform(blocks).flatten(-2)
