"""The TurboQuant caches of mlx-swift-lm, simulated: they run only on Metal.

Values, and for "turbo4" keys too, are divided by their norm, rotated by signs and a Hadamard
transform, and rounded to the centroids of a codebook (arXiv 2504.19874). As in mlx-swift-lm, a
prompt is kept as it was computed, and everything is compressed when the first token is
generated. This cache then holds what the compressed one would decode, in the model's dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import KVCache, make_prompt_cache

from h2o_pack.memory.cache_bytes import FLOAT32, vector_bytes

Array = Any
Pair = tuple[Array, Array]
PLAIN, AFFINE = 16, 8
"""Bits that keep a vector as it is, and those that MLX quantizes; fewer are rotated."""
GROUP_SIZE = 64
PROTECTED = 2
"""Layers at either end that keep 8 bits if keys are rotated too."""
SCALES = (0.25, 4.0)
FLAT = 0.1
"""The scale of a key's elements is not used if all scales are this close to 1."""
ITERATIONS, GRID = 100, 32768


class TurboQuantCache(KVCache):
    """A cache of mlx-lm that rounds what it holds as a TurboQuant cache does.

    key_bits: 16 keeps keys, 8 quantizes them as MLX does, 4 rotates them.
    value_bits: 8 quantizes values as MLX does, 3 and 4 rotate them.
    """

    def __init__(self, key_bits: int, value_bits: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.key_bits, self.value_bits = key_bits, value_bits
        self._key_scales: Array = None
        self._compressed = False

    def update_and_fetch(self, keys: Array, values: Array) -> Pair:
        """Return all keys and values [B, Hkv, T, D], rounded once a token is generated."""
        if self._compressed:
            keys, values = self._rounded(keys, values)
        held: Pair = super().update_and_fetch(keys, values)  # type: ignore[no-untyped-call]
        if keys.shape[2] == 1 and not self._compressed:
            self._compressed = True
            if self.key_bits < AFFINE:
                self._key_scales = _key_scales(held[0])
            self.keys, self.values = self._rounded(*held)
            held = self.keys, self.values
        return held

    def _rounded(self, keys: Array, values: Array) -> Pair:
        return _rounded(keys, self.key_bits, self._key_scales), _rounded(
            values, self.value_bits
        )


def turbo_quant(key_bits: int, value_bits: int) -> Callable[[Any], list[Any]]:
    """Return a function that makes the caches of a model's layers.

    Where keys are rotated, the first and last layers have 8 bits instead.
    """

    def make(model: Any) -> list[Any]:
        caches = make_prompt_cache(model)
        growing = [i for i, cache in enumerate(caches) if type(cache) is KVCache]
        ends = {*growing[:PROTECTED], *growing[-PROTECTED:]}
        for i in growing:
            is_protected = key_bits < AFFINE and i in ends
            bits = (AFFINE, AFFINE) if is_protected else (key_bits, value_bits)
            caches[i] = TurboQuantCache(*bits)
        return caches

    return make


def turbo_vector_bytes(width: int, bits: int) -> int:
    """Return the bytes of a vector of 16-bit elements; if it is rotated, with its norm."""
    if bits < AFFINE:
        return width * bits // 8 + FLOAT32
    return vector_bytes(width, bits, GROUP_SIZE, 2)


@cache
def codebook(width: int, bits: int) -> tuple[float, ...]:
    """Return the centroids that round an element of a rotated unit vector with least error.

    They are Lloyd and Max's for the density (1 - x^2)^((width - 3) / 2).
    """
    grid = np.linspace(-1, 1, GRID)
    density = np.maximum(1 - grid**2, 1e-30) ** ((width - 3) / 2)
    share = np.cumsum(density) / density.sum()
    centroids = np.interp((np.arange(2**bits) + 0.5) / 2**bits, share, grid)
    for _ in range(ITERATIONS):
        nearest = np.searchsorted((centroids[1:] + centroids[:-1]) / 2, grid)
        weight = np.bincount(nearest, density, minlength=2**bits)
        centroids = np.bincount(nearest, density * grid, minlength=2**bits) / weight
    return tuple(centroids.tolist())


def _rounded(vectors: Array, bits: int, scales: Array = None) -> Array:
    if bits == PLAIN:
        return vectors
    if bits == AFFINE:
        packed = mx.quantize(vectors, GROUP_SIZE, bits)
        return mx.dequantize(*packed, GROUP_SIZE, bits).astype(vectors.dtype)
    width = vectors.shape[-1]
    norms, rotated = _rotated(vectors)
    centroids = mx.array(codebook(width, bits))
    between = (centroids[1:] + centroids[:-1]) / 2
    even = rotated if scales is None else rotated / scales
    nearest = (even[..., None] > between).sum(-1)
    result = centroids[nearest]
    if scales is not None:
        result = result * scales
        norms = norms / mx.sqrt((result * result).sum(-1, keepdims=True))
    return (norms * mx.hadamard_transform(result) * _signs(width)).astype(vectors.dtype)


def _rotated(vectors: Array) -> Pair:
    """Return the norms of vectors, and the vectors of norm 1 after rotation."""
    vectors = vectors.astype(mx.float32)
    norms = mx.sqrt((vectors * vectors).sum(-1, keepdims=True))
    unit = vectors / mx.maximum(norms, 1e-8)
    return norms, mx.hadamard_transform(unit * _signs(vectors.shape[-1]))


def _key_scales(keys: Array) -> Array:
    """Return the spread of each element of rotated keys, 1 on average; None if all agree."""
    _, rotated = _rotated(keys)
    spread = mx.std(rotated.reshape(-1, keys.shape[-1]), axis=0)
    scales = mx.clip(spread / spread.mean(), *SCALES)
    return scales if mx.any(mx.abs(scales - 1) >= FLAT) else None


def _signs(width: int) -> Array:
    return mx.array(np.random.default_rng(width).choice([-1.0, 1.0], width).astype(np.float32))
