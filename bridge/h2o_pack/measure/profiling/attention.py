"""Observes a model's attention on pieces of text: figures, how far back it looks, and maps."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import CacheList, KVCache

from h2o_pack.files.text import read_text
from h2o_pack.measure.profiling import report
from h2o_pack.measure.profiling.report import Figures, HeadProfile, Kind, LayerProfile
from h2o_pack.measure.text import (
    BETWEEN_DOCUMENTS,
    Part,
    beginning,
    held_out_text,
    longer_than_a_context,
    too_short,
)
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

    [G, L], for each query: visible, how many tokens it sees; entropy, in nats; top, the sum of
    its 32 largest probabilities; variance of its logits; faint, how many visible tokens have
    less than 1% of its largest probability. [N], for each token: received, its probability
    summed over queries and averaged over heads; expected, the same if every query looked at all
    visible tokens equally. probabilities: [G, L, N], 0 for hidden tokens.
    """

    visible: mx.array
    entropy: mx.array
    top: mx.array
    variance: mx.array
    faint: mx.array
    received: mx.array
    expected: mx.array
    probabilities: mx.array


def figures(logits: mx.array, sinks: mx.array | None = None) -> Rows:
    """Return figures of logits [G, L, N]; every query must see at least one token.

    sinks: [G], logits of the model that take probability but belong to no token. They lower
    `received`; the other figures describe the distribution over tokens alone.
    """
    visible = logits > HIDDEN
    count = visible.sum(axis=-1, keepdims=True)
    finite = mx.where(visible, logits, 0)
    mean = finite.sum(axis=-1, keepdims=True) / count
    variance = mx.where(visible, (logits - mean) ** 2, 0).sum(axis=-1) / count[..., 0]
    largest = mx.where(visible, logits, -math.inf).max(axis=-1, keepdims=True)
    below = mx.where(visible, logits - largest, 0)
    weights = mx.where(visible, mx.exp(below), 0)
    total = weights.sum(axis=-1, keepdims=True)
    probabilities = weights / total
    received = probabilities
    if sinks is not None:
        over = mx.log(total) + largest - sinks.astype(mx.float32)[:, None, None]
        received = probabilities * mx.sigmoid(over)
    return Rows(
        visible=count[..., 0],
        entropy=(mx.log(total) - (probabilities * below).sum(axis=-1, keepdims=True))[..., 0],
        top=mx.topk(probabilities, min(TOP, logits.shape[-1]), axis=-1).sum(axis=-1),
        variance=variance,
        faint=(visible & (below < math.log(FAINT))).sum(axis=-1),
        received=received.sum(axis=1).mean(axis=0),
        expected=(visible[0] / count[0]).sum(axis=0),
        probabilities=probabilities,
    )


def working_bytes(heads: int, kv_heads: int, chunk: int, tokens: int) -> int:
    """Return the most memory that observing attention takes at once, in bytes.

    This is one layer's logits for a chunk, and the arrays that `figures` makes for one KV head.
    The caches and the model's activations take more memory besides.
    """
    arrays_of_figures = 9
    entries = chunk * tokens * 4
    return heads * entries + arrays_of_figures * heads // kv_heads * entries


def samples(tokenizer: Any, path: Path | None, tokens: int, count: int) -> list[list[int]]:
    """Return token ids of `count` pieces of `tokens` each, spread evenly over the text.

    path: a text file; None for the held-out text. If the tokenizer puts a token before a text
    (BOS), every piece begins with it. Raises UserError: the file cannot be read, or it is
    shorter than one piece.
    """
    texts = held_out() if path is None else (read_text(path, "Give a file of UTF-8 text."),)
    with longer_than_a_context():
        encoded = [list(tokenizer.encode(text)) for text in texts]
    begin = beginning(tokenizer, encoded[0])
    bodies = [ids[len(begin) :] for ids in encoded]
    need = tokens - len(begin)
    for ids in bodies:
        if len(ids) < need:
            raise too_short(len(ids), need)
    pieces = []
    for i in range(count):
        ids, of_this = bodies[i % len(bodies)], -(-count // len(bodies))
        last = len(ids) - need
        start = last * (i // len(bodies)) // max(1, of_this - 1) if of_this > 1 else last // 2
        pieces.append([*begin, *ids[start : start + need]])
    return pieces


def held_out() -> tuple[str, ...]:
    """Return prose and source code that the demo model was not trained on.

    The token between documents is left out, because other models would read it as text.
    """
    texts = [held_out_text(part) for part in sorted(get_args(Part))]
    return tuple(text.replace(BETWEEN_DOCUMENTS, "\n\n") for text in texts)


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


CELLS = 160


class MapBuilder:
    """Builds one map of attention per query head of a layer over one sample, from chunks."""

    def __init__(self, heads: int, tokens: int) -> None:
        self._tokens, self._cells = tokens, min(CELLS, tokens)
        self.maps = np.zeros((heads, self._cells, self._cells), np.float32)
        """[heads, queries, tokens], in cells; 0 if a cell's queries see none of its tokens."""

    def add(self, first_head: int, probabilities: Array, end: int) -> None:
        """Add probabilities [G, L, N]; the newest query and token are at position `end` - 1."""
        group, queries, tokens = probabilities.shape
        columns, column_starts = self._grid(end - tokens, end)
        lines, line_starts = self._grid(end - queries, end)
        pooled = np.maximum.reduceat(probabilities, column_starts, axis=2)
        pooled = np.maximum.reduceat(pooled, line_starts, axis=1)
        maps = self.maps[first_head : first_head + group]
        place = np.ix_(np.arange(group), lines, columns)
        maps[place] = np.maximum(maps[place], pooled)

    def _grid(self, begin: int, end: int) -> tuple[Array, Array]:
        """Return the cells of positions begin..end-1, and the index where each begins."""
        cells = np.arange(begin, end) * self._cells // self._tokens
        return np.unique(cells, return_index=True)


class LayerTally:
    """Sums of a layer's attention over the samples read so far.

    Queries before position `first_row` do not count in means. mapped: whether to build a map of
    the first sample.
    """

    def __init__(self, tokens: int, first_row: int, *, mapped: bool) -> None:
        self._tokens, self._first_row, self._mapped = tokens, first_row, mapped
        self.maps: Array | None = None
        self._builder: MapBuilder | None = None
        self._samples: list[Array] = []
        self._received: list[report.Accumulated] = []
        self._expected: list[report.Accumulated] = []
        self._sums: Array | None = None
        self._windows = windows(tokens)
        self._beyond: list[Array] = []
        self._outside: Array = np.zeros(len(self._windows))
        self.votes: list[float] = []
        self._kv_heads = 0
        self.heads = 0

    @property
    def empty(self) -> bool:
        """Whether no attention was observed."""
        return not self._samples

    def add(self, observed: ObservedAttention) -> None:
        """Add the attention of a chunk, one KV head after the other."""
        heads, queries, _ = observed.logits.shape
        if self._sums is None:
            self._begin(heads, observed.kv_heads)
        group = heads // observed.kv_heads
        skipped = max(0, self._first_row - (observed.end - queries))
        for h in range(observed.kv_heads):
            heads_of_h = slice(h * group, (h + 1) * group)
            sinks = None if observed.sinks is None else observed.sinks[heads_of_h]
            rows = figures(observed.logits[heads_of_h], sinks)
            self._enter(heads_of_h, rows, observed.end, skipped)

    def end_sample(self) -> None:
        """End a sample: compute its means and its accumulated attention."""
        if self._sums is None:
            return
        count = self._sums[:, :1]
        entropy, normalized, top, variance, faint, visible = self._sums[:, 1:].T
        means = np.stack([entropy, normalized, top, variance], axis=1) / count
        sparsity = faint / visible
        self._beyond.append(self._outside / count.sum())
        self._samples.append(np.concatenate([means, sparsity[:, None]], axis=1))
        self._received += map(report.summarize, self._got)
        self._expected.append(report.summarize(self._even))
        if self._builder is not None:
            self.maps, self._builder, self._mapped = self._builder.maps, None, False
        self._sums = None

    def profile(self, index: int, cache: str, kind: Kind, window: int | None) -> LayerProfile:
        """Return the layer's figures over all samples."""
        by_sample = np.stack(self._samples)  # [samples, heads, figures]
        over_heads = by_sample.mean(axis=1)
        group = by_sample.shape[1] // self._kv_heads
        return LayerProfile(
            index=index,
            cache=cache,
            kind=kind,
            window=window,
            figures=Figures(*over_heads.mean(axis=0).tolist()),
            deviations=Figures(*over_heads.std(axis=0).tolist()),
            accumulated=report.mean(self._received),
            accumulated_evenly=report.mean(self._expected),
            beyond=tuple(np.mean(self._beyond, axis=0).tolist()),
            votes=float(np.mean(self.votes)),
            heads=tuple(
                HeadProfile(i, i // group, Figures(*row))
                for i, row in enumerate(by_sample.mean(axis=0).tolist())
            ),
        )

    def _begin(self, heads: int, kv_heads: int) -> None:
        self.heads, self._kv_heads = heads, kv_heads
        self._sums = np.zeros((heads, 7))
        self._got = np.zeros((kv_heads, self._tokens))
        self._even = np.zeros(self._tokens)
        self._outside = np.zeros(len(self._windows))
        if self._mapped:
            self._builder = MapBuilder(heads, self._tokens)

    def _enter(self, heads: slice, rows: Rows, end: int, skipped: int) -> None:
        assert self._sums is not None  # noqa: S101  _begin came first
        visible = rows.visible
        normalized = rows.entropy / mx.log(mx.maximum(visible, 2))
        by_row = [rows.entropy, normalized, rows.top, rows.variance, rows.faint, visible]
        counted = mx.stack([row.astype(mx.float32) for row in by_row])[..., skipped:]
        sums = np.array(counted.sum(axis=-1)).T.astype(np.float64)
        self._sums[heads, 0] += max(0, visible.shape[1] - skipped)
        self._sums[heads, 1:] += sums
        outside = beyond(rows.probabilities, end, self._windows)[:, skipped:]
        self._outside += np.array(outside.sum(axis=(0, 1))).astype(np.float64)
        tokens = slice(end - len(rows.received), end)
        kv_head = heads.start // (heads.stop - heads.start)
        self._got[kv_head, tokens] += np.array(rows.received)
        if heads.start == 0:
            self._even[tokens] += np.array(rows.expected)
        if self._builder is not None:
            self._builder.add(heads.start, np.array(rows.probabilities), end)


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


def votes(observed: ObservedAttention, first: int, count: int) -> float:
    """Return the votes of the last `count` queries for the `count` tokens from `first` on.

    As in recall, a token gets each query head's largest probability, squared. The sum is 0 if
    the layer no longer sees the first of these tokens.
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
