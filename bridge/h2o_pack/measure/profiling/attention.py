"""Observes a model's attention: figures, and how far back it looks."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import CacheList, KVCache

from h2o_pack.measure.profiling.options import Options
from h2o_pack.measure.profiling.profile_report import Figures, Kind, LayerProfile
from h2o_py import fast
from h2o_py.cache import Fetched

TOP = 32
FAINT = 0.01
HIDDEN = -32000.0
"""Logits at or below this belong to hidden rows: masks use half of float16's lowest number,
-32752, or a lower number (docs/decisions.md)."""


@dataclass(frozen=True)
class Rows:
    """Figures of the attention of one KV head's G query heads, for L queries over N tokens.

    by_query: [6, G, L]: entropy, in nats; entropy divided by its largest possible value; the
    sum of the 32 largest probabilities; the variance of the logits; how many visible tokens
    have less than 1% of the largest probability; how many tokens are visible. probabilities:
    [G, L, N], 0 for hidden tokens.
    """

    by_query: mx.array
    probabilities: mx.array


def figures(logits: mx.array) -> Rows:
    """Return figures of logits [G, L, N]; every query must see at least one token.

    They describe the distribution over tokens alone, without sinks.
    """
    visible = logits > HIDDEN
    count = visible.sum(axis=-1)
    finite = mx.where(visible, logits, 0)
    mean = finite.sum(axis=-1) / count
    squares = mx.where(visible, (logits - mean[..., None]) ** 2, 0)
    largest = mx.where(visible, logits, -math.inf).max(axis=-1, keepdims=True)
    below = mx.where(visible, logits - largest, 0)
    weights = mx.where(visible, mx.exp(below), 0)
    total = weights.sum(axis=-1, keepdims=True)
    probabilities = weights / total
    entropy = mx.log(total[..., 0]) - (probabilities * below).sum(axis=-1)
    by_query = [
        entropy,
        entropy / mx.log(mx.maximum(count, 2)),
        mx.topk(probabilities, min(TOP, logits.shape[-1]), axis=-1).sum(axis=-1),
        squares.sum(axis=-1) / count,
        (visible & (below < math.log(FAINT))).sum(axis=-1),
        count,
    ]
    return Rows(mx.stack([figure.astype(mx.float32) for figure in by_query]), probabilities)


SINKS = 4
"""Number of first tokens. Every cache keeps them, so attention to them is never lost."""
AN_OCTAVE = 4
"""Number of window sizes between one size and its double."""
_SMALLEST = 8

Array = np.ndarray[Any, np.dtype[Any]]


def windows(tokens: int) -> Array:
    """Return window sizes in tokens, [K], from 8 to `tokens`, `AN_OCTAVE` per doubling."""
    smallest = min(_SMALLEST, tokens)
    points = 1 + math.ceil(AN_OCTAVE * math.log2(tokens / smallest))
    return np.unique(np.geomspace(smallest, tokens, points).round().astype(int))


def beyond(probabilities: mx.array, end: int, sizes: Array) -> mx.array:
    """Return the share of each query's attention on tokens before a window: [G, L, K].

    Attention to the first `SINKS` tokens does not count. probabilities: [G, L, N] of the last L
    queries over the last N tokens. end: position after the last query. sizes: [K], windows in
    tokens, which include the query's own token.
    """
    heads, queries, tokens = probabilities.shape
    first = end - tokens
    least = min(tokens, max(0, SINKS - first))
    edges = np.arange(end - queries, end)[:, None] + 1 - sizes - first
    edges = np.clip(edges, least, tokens)
    none = mx.zeros((heads, queries, 1), probabilities.dtype)
    below = mx.concatenate([none, mx.cumsum(probabilities, axis=-1)], axis=-1)
    indices = mx.broadcast_to(mx.array(edges)[None], (heads, *edges.shape))
    return mx.take_along_axis(below, indices, axis=-1) - below[..., least : least + 1]


@dataclass(frozen=True)
class ObservedAttention:
    """One layer's attention for a chunk of tokens.

    logits: float32 [Hq, L, N], at most `HIDDEN` for hidden tokens. end: the position after the
    newest token: query l is at position end - L + l, token j at end - N + j. sinks: [Hq],
    logits of the model that belong to no token, or None.
    """

    logits: mx.array
    kv_heads: int
    end: int
    sinks: mx.array | None


class SampleAttention:
    """A layer's attention over one sample, added chunk by chunk.

    options: how long the sample is, and which of its queries do not count in means. first: the
    first chunk, which tells the number of heads. retrieval: set from outside.
    """

    def __init__(self, options: Options, first: ObservedAttention) -> None:
        self._options = options
        self.heads, self.kv_heads = first.logits.shape[0], first.kv_heads
        self._windows = windows(options.tokens)
        self._queries = 0
        self._sums = np.zeros((self.heads, 6))
        self._beyond = np.zeros(len(self._windows))
        self.retrieval = 0.0

    def add(self, observed: ObservedAttention) -> None:
        """Add the attention of a chunk, one KV head after the other."""
        queries = observed.logits.shape[1]
        skipped = max(0, self._options.first_row - (observed.end - queries))
        self._queries += max(0, queries - skipped)
        group = self.heads // self.kv_heads
        for h in range(self.kv_heads):
            heads_of_h = slice(h * group, (h + 1) * group)
            rows = figures(observed.logits[heads_of_h])
            self._sums[heads_of_h] += np.array(rows.by_query[..., skipped:].sum(axis=-1)).T
            outside = beyond(rows.probabilities, observed.end, self._windows)[:, skipped:]
            self._beyond += np.array(outside.sum(axis=(0, 1)))

    @property
    def means(self) -> Array:
        """The figures of each head, means over queries: [Hq, 5], in the order of `Figures`."""
        means, faint, visible = np.split(self._sums, [4, 5], axis=1)
        return np.concatenate([means / self._queries, faint / visible], axis=1)

    @property
    def beyond_windows(self) -> Array:
        """The share of attention beyond each window, [K]."""
        return self._beyond / (self.heads * self._queries)


def layer_profile(index: int, cache: Any, samples: Sequence[SampleAttention]) -> LayerProfile:
    """Return the figures of a layer, whose cache this is, over all samples."""
    over_heads = np.stack([sample.means.mean(axis=0) for sample in samples])
    kind, window = kind_of(cache)
    return LayerProfile(
        index=index,
        cache=type(cache).__name__,
        kind=kind,
        window=window,
        figures=Figures(*over_heads.mean(axis=0).tolist()),
        deviations=Figures(*over_heads.std(axis=0).tolist()),
        beyond=tuple(np.mean([sample.beyond_windows for sample in samples], axis=0).tolist()),
        retrieval=float(np.mean([sample.retrieval for sample in samples])),
    )


def retrieval(observed: ObservedAttention, first: int, count: int) -> float:
    """Return how strongly the last `count` queries attend to `count` tokens from `first` on.

    This is the sum, over query heads and tokens, of the largest probability that one of the
    queries gives the token, squared; 0 if the layer no longer sees the first of the tokens.
    """
    logits = observed.logits[:, -count:]
    column = first - (observed.end - logits.shape[-1])
    if column < 0:
        return 0.0
    total = mx.logsumexp(logits, axis=-1, keepdims=True)
    if observed.sinks is not None:
        total = mx.logaddexp(total, observed.sinks.astype(mx.float32)[:, None, None])
    probabilities = mx.exp(logits[..., column : column + count] - total)
    return float((probabilities.max(axis=1) ** 2).sum())


Watch = Callable[[int, ObservedAttention], None]


def attention_caches(caches: list[Any]) -> dict[int, Any]:
    """Return the cache that attention reads, by layer index; omit layers without attention."""
    caches_by_layer = {}
    for index, cache in enumerate(caches):
        members = cache.caches if isinstance(cache, CacheList) else [cache]
        attending = [member for member in members if hasattr(member, "update_and_fetch")]
        if len(attending) == 1:
            caches_by_layer[index] = attending[0]
    return caches_by_layer


def record(caches: list[Any], watch: Watch) -> None:
    """Make the attention of empty caches call `watch(layer, observed)` from now on."""
    for index, cache in attention_caches(caches).items():
        kind = type(cache)
        cache.__class__ = type(f"Recording{kind.__name__}", (_Recording, kind), {})
        cache.watch, cache.layer, cache.awaited = watch, index, None


def kind_of(cache: Any) -> tuple[Kind, int | None]:
    """Return the kind of a cache's attention, and the window in tokens if it is sliding."""
    if type(cache) is KVCache:
        return "full", None
    window = getattr(cache, "max_size", None)
    return ("other", None) if window is None else ("sliding", int(window))


class _Recording:
    """A mixin for mlx_lm's caches that reports their attention; for a batch size of 1."""

    watch: Watch
    layer: int
    awaited: Fetched | None
    offset: int

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        keys, values = super().update_and_fetch(keys, values)  # type: ignore[misc]
        self.awaited = weakref.ref(keys), weakref.ref(values)
        return keys, values

    def attend(
        self,
        queries: mx.array,
        *,
        scale: float,
        mask: mx.array | str | None = None,
        sinks: mx.array | None = None,
    ) -> mx.array:
        keys, values = (array() for array in self.awaited)  # type: ignore[union-attr]
        self.awaited = None
        out, logits = fast.scaled_dot_product_attention_with_scores(
            queries, keys, values, scale=scale, mask=mask, sinks=sinks
        )
        heads, tokens = queries.shape[1:3]
        mx.eval(out, logits)
        by_head = logits.reshape(heads, tokens, -1)
        self.watch(self.layer, ObservedAttention(by_head, keys.shape[1], self.offset, sinks))
        return out
