"""How far back attention looks: what falls on tokens that a window would have lost."""

from __future__ import annotations

import math
from typing import Any

import mlx.core as mx
import numpy as np

SINKS = 4
"""First tokens, which every cache keeps: attention to them is not lost."""
AN_OCTAVE = 4
"""Windows for each doubling."""
_SMALLEST = 8

Array = np.ndarray[Any, np.dtype[Any]]


def windows(tokens: int) -> Array:
    """Return window sizes from 8 to `tokens`, four per doubling, in tokens."""
    smallest = min(_SMALLEST, tokens)
    points = 1 + math.ceil(AN_OCTAVE * math.log2(tokens / smallest))
    return np.unique(np.geomspace(smallest, tokens, points).round().astype(int))


def beyond(probabilities: mx.array, end: int, sizes: Array) -> mx.array:
    """Return the share of each query's attention that is older than a window, sinks aside.

    Args:
        probabilities: [G, L, N] of the last L queries over the last N tokens.
        end: position after the last query.
        sizes: [K], windows in tokens, the query's own among them.

    Returns:
        [G, L, K].

    """
    heads, queries, tokens = probabilities.shape
    first = end - tokens
    least = min(tokens, max(0, SINKS - first))
    edges = np.arange(end - queries, end)[:, None] + 1 - sizes - first
    edges = np.clip(edges, least, tokens)
    none = mx.zeros((heads, queries, 1), probabilities.dtype)
    below = mx.concatenate([none, mx.cumsum(probabilities, axis=-1)], axis=-1)
    at = mx.broadcast_to(mx.array(edges)[None], (heads, *edges.shape))
    return mx.take_along_axis(below, at, axis=-1) - below[..., least : least + 1]
