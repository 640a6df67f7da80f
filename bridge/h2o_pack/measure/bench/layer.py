"""Decode steps of one layer: write, attention, and what the cache keeps of it."""

from __future__ import annotations

import itertools
from typing import Any, TypeAlias

import mlx.core as mx

from h2o_pack.measure.bench.caches import MeasuredCache
from h2o_pack.measure.bench.options import Options
from h2o_py.routing import routed_attention

WARM_UP = 8
_INPUTS = 16

Chunk: TypeAlias = tuple[mx.array, mx.array, mx.array]
"""Queries, keys and values of some tokens."""


class Layer:
    """One layer's decoding with one cache, on random tokens of fixed shape.

    Args:
        cache: of the layer.
        options: the layer's shape.
        dtype: of queries, keys and values.
        hold: rows to which a cache without a bound of its own is trimmed before each
            step; None leaves the cache alone.

    """

    def __init__(
        self, cache: Any, options: Options, dtype: mx.Dtype, *, hold: int | None = None
    ) -> None:
        self.cache = cache
        self._options, self._dtype, self._hold = options, dtype, hold
        self._scale = options.head_dim**-0.5
        tokens = [
            (self._random(options.heads, 1), *self._random_rows(1)) for _ in range(_INPUTS)
        ]
        mx.eval(tokens)
        self._tokens = itertools.cycle(tokens)

    def fill(self, tokens: int) -> None:
        """Put random tokens into the cache, without attention."""
        while tokens > 0:
            count = min(tokens, self._options.capacity)
            fetched = self.cache.update_and_fetch(*self._random_rows(count))
            mx.eval(fetched)
            del fetched
            if hasattr(self.cache, "settle"):
                self.cache.settle()
            mx.eval(self.cache.state)
            tokens -= count

    def step(self) -> mx.array:
        """Return one token's attention [1, Hq, 1, D], not evaluated yet."""
        queries, keys, values = next(self._tokens)
        cache = self.cache
        if self._hold is not None and cache.offset >= self._hold:
            cache.trim(cache.offset + 1 - self._hold)
        if hasattr(cache, "bits"):
            queries = mx.stop_gradient(queries)  # mlx_lm scales a quantized cache's in place
        keys, values = cache.update_and_fetch(keys, values)
        return routed_attention(queries, keys, values, cache, self._scale)

    def chunk(self, tokens: int) -> Chunk:
        """Return queries, keys and values of random tokens, evaluated."""
        made = (self._random(self._options.heads, tokens), *self._random_rows(tokens))
        mx.eval(made)
        return made

    def attend(self, chunk: Chunk, cache: Any = None) -> None:
        """Read a chunk with attention, in the layer's cache or another one."""
        cache = self.cache if cache is None else cache
        queries, keys, values = chunk
        keys, values = cache.update_and_fetch(keys, values)
        out = routed_attention(queries, keys, values, cache, self._scale, "causal")
        del keys, values
        mx.eval(out, cache.state)

    def run(self) -> None:
        """Decode one token, evaluated before this returns."""
        mx.eval(self.step())

    def _random(self, heads: int, tokens: int) -> mx.array:
        shape = (1, heads, tokens, self._options.head_dim)
        return mx.random.normal(shape).astype(self._dtype)

    def _random_rows(self, tokens: int) -> tuple[mx.array, mx.array]:
        kv_heads = self._options.kv_heads
        return self._random(kv_heads, tokens), self._random(kv_heads, tokens)


def group_size(options: Options) -> int:
    """Elements that share a scale in quantized rows: 64, or 32 where 64 does not divide D."""
    return 64 if options.head_dim % 64 == 0 else 32


def steady(
    kind: MeasuredCache, options: Options, dtype: mx.Dtype, tokens: int | None = None
) -> Layer:
    """Return a layer whose cache is full, so that each step evicts.

    Args:
        kind: the cache.
        options: the layer's shape.
        dtype: of queries, keys and values.
        tokens: tokens seen before; None for as many as there are rows.

    """
    cache = kind.make(options.capacity, group_size(options))
    layer = Layer(cache, options, dtype, hold=None if kind.bounded else options.capacity)
    layer.fill(tokens or options.capacity)
    for _ in range(WARM_UP):
        layer.run()
    return layer
