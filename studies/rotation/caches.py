"""Caches whose keys and values are rotated before they are quantized, and rows of 3 bits.

A rotation leaves every product of a query and a key as it is, so a cache of rotated rows is an
ordinary cache that is given rotated queries, keys and values and whose output is turned back.
What is kept does not change either: scores and novelty depend on such products alone.
"""

from __future__ import annotations

import mlx.core as mx

from h2o_py.cache import H2OKVCache
from h2o_py.config import H2OConfig


class Rotation:
    """A Hadamard matrix with random signs, orthonormal.

    Args:
        dim: of a head; a power of two.
        seed: of the signs.

    """

    def __init__(self, dim: int, seed: int) -> None:
        draw = mx.random.bernoulli(shape=(dim,), key=mx.random.key(seed))
        self._signs = mx.where(draw, 1.0, -1.0)

    def turn(self, x: mx.array) -> mx.array:
        """Rotate vectors [..., D], in float32, to the dtype in which they came."""
        return mx.hadamard_transform(x.astype(mx.float32) * self._signs).astype(x.dtype)

    def turn_back(self, x: mx.array) -> mx.array:
        """Undo `turn`."""
        return (mx.hadamard_transform(x.astype(mx.float32)) * self._signs).astype(x.dtype)


class RotatedCache:
    """A cache of one layer that stores rotated rows, with the contract of its inner cache."""

    def __init__(self, inner: H2OKVCache, rotation: Rotation) -> None:
        self._inner, self._rotation = inner, rotation

    def __getattr__(self, name: str) -> object:
        """Ask the inner cache for all that rotation does not change."""
        return getattr(self._inner, name)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write new tokens; the rows that are returned are rotated."""
        return self._inner.update_and_fetch(
            self._rotation.turn(keys), self._rotation.turn(values)
        )

    def attend(self, queries: mx.array, **options: object) -> mx.array:
        """Attention of the tokens just written, as the inner cache computes it."""
        out = self._inner.attend(self._rotation.turn(queries), **options)
        return self._rotation.turn_back(out)


class CoarseCache(H2OKVCache):
    """`H2OKVCache` whose rows are rounded to `bits` in groups when they are written.

    It computes what a cache of so many bits would; the rows themselves stay dense.
    """

    def __init__(self, config: H2OConfig, bits: int, group_size: int) -> None:
        super().__init__(config)
        self._bits, self._group_size = bits, group_size

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Round the new tokens and write them."""
        return super().update_and_fetch(self._rounded(keys), self._rounded(values))

    def _rounded(self, x: mx.array) -> mx.array:
        stored = mx.quantize(x, self._group_size, self._bits)
        return mx.dequantize(*stored, self._group_size, self._bits).astype(x.dtype)
