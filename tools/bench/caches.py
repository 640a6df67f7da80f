"""One layer of random tokens, whose cache and whose other parts are measured."""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass
from typing import Any, TypeAlias

import mlx.core as mx

from h2o_pack.measure.bench import GROUP_SIZE
from h2o_py.routing import routed_attention


@dataclass(frozen=True)
class Options:
    """One layer's shape.

    heads: query heads (Hq). kv_heads: KV heads (Hkv); divides `heads`. head_dim: elements of a
    key and of a value (D). capacity: rows that a KV head keeps (C).
    """

    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    capacity: int = 512


_INPUTS = 16

Chunk: TypeAlias = tuple[mx.array, mx.array, mx.array]
"""Queries, keys and values of some tokens."""


class Layer:
    """One layer's decoding with one cache, on random float32 tokens of fixed shape.

    Args:
        cache: of the layer.
        options: the layer's shape.

    """

    def __init__(self, cache: Any, options: Options) -> None:
        self.cache = cache
        self._options = options
        self._scale = options.head_dim**-0.5
        tokens = [
            (self._random(options.heads, 1), *self._random_rows(1)) for _ in range(_INPUTS)
        ]
        mx.eval(tokens)
        self._tokens = itertools.cycle(tokens)

    def chunk(self, tokens: int) -> Chunk:
        """Return queries, keys and values of random tokens, evaluated."""
        chunk = (self._random(self._options.heads, tokens), *self._random_rows(tokens))
        mx.eval(chunk)
        return chunk

    def attend(self, chunk: Chunk) -> None:
        """Write a chunk to the cache and compute its attention."""
        queries, keys, values = chunk
        keys, values = self.cache.update_and_fetch(keys, values)
        out = routed_attention(queries, keys, values, self.cache, self._scale, "causal")
        del keys, values
        mx.eval(out, self.cache.state)

    def copied(self) -> Layer:
        """Return the layer with a copy of its cache."""
        twin = copy.copy(self)
        twin.cache = self.cache.copy()
        return twin

    def run(self) -> None:
        """Decode one token, evaluated before this returns."""
        queries, keys, values = next(self._tokens)
        keys, values = self.cache.update_and_fetch(keys, values)
        out = routed_attention(queries, keys, values, self.cache, self._scale)
        del keys, values
        mx.eval(out)

    def _random(self, heads: int, tokens: int) -> mx.array:
        shape = (1, heads, tokens, self._options.head_dim)
        return mx.random.normal(shape)

    def _random_rows(self, tokens: int) -> tuple[mx.array, mx.array]:
        kv_heads = self._options.kv_heads
        return self._random(kv_heads, tokens), self._random(kv_heads, tokens)


BITS = 4
HIDDEN, FEED_FORWARD = 2560, 9728


class RestOfLayer:
    """Projections and feed-forward of a layer, with 4-bit weights and float32 activations.

    The sizes are from Qwen3-4B. Norms and activation functions are left out. Activations are
    float32, because MLX multiplies these on a CPU ten times faster than 16-bit activations;
    this makes the rest as fast as possible.
    """

    def __init__(self, options: Options) -> None:
        queries, keys = (n * options.head_dim for n in (options.heads, options.kv_heads))
        sizes = (
            (HIDDEN, queries), (HIDDEN, keys), (HIDDEN, keys), (queries, HIDDEN),
            (HIDDEN, FEED_FORWARD), (HIDDEN, FEED_FORWARD), (FEED_FORWARD, HIDDEN),
        )  # fmt: skip
        self._weights = [
            (n_in, mx.quantize(mx.random.normal((n_out, n_in)), GROUP_SIZE, BITS))
            for n_in, n_out in sizes
        ]
        mx.eval([arrays for _, arrays in self._weights])

    def run(self, tokens: int) -> None:
        """Multiply random activations of `tokens` tokens with each weight, on the CPU."""
        out = []
        for n_in, (words, scales, biases) in self._weights:
            x = mx.full((tokens, n_in), 0.5)
            out.append(
                mx.quantized_matmul(x, words, scales, biases, group_size=GROUP_SIZE, bits=BITS)
            )
        mx.eval(out)
