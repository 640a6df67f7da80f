"""One layer's figures, gathered chunk by chunk over all samples."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from h2o_pack.measure.profiling import accumulated, reach, rows
from h2o_pack.measure.profiling.maps import MapBuilder
from h2o_pack.measure.profiling.recorder import ObservedAttention
from h2o_pack.measure.profiling.report import Figures, HeadProfile, Kind, LayerProfile

Array = np.ndarray[Any, np.dtype[Any]]


class LayerTally:
    """Sums of a layer's attention over what was read so far.

    Args:
        tokens: of each sample.
        first_row: position of the first query that enters the means.
        mapped: whether a map of the first sample is wanted.

    """

    def __init__(self, tokens: int, first_row: int, *, mapped: bool) -> None:
        self._tokens, self._first_row, self._mapped = tokens, first_row, mapped
        self.maps: Array | None = None
        self._builder: MapBuilder | None = None
        self._samples: list[Array] = []
        self._received: list[list[accumulated.Accumulated]] = []
        self._expected: list[accumulated.Accumulated] = []
        self._sums: Array | None = None
        self._windows = reach.windows(tokens)
        self._beyond: list[Array] = []
        self._outside: Array = np.zeros(len(self._windows))
        self._kv_heads = 0
        self.heads = 0

    @property
    def empty(self) -> bool:
        """Whether no attention arrived."""
        return not self._samples

    def add(self, seen: ObservedAttention) -> None:
        """Enter a chunk, one KV head after the other."""
        heads, queries, _ = seen.logits.shape
        if self._sums is None:
            self._begin(heads, seen.kv_heads)
        group = heads // seen.kv_heads
        skipped = max(0, self._first_row - (seen.end - queries))
        for h in range(seen.kv_heads):
            mine = slice(h * group, (h + 1) * group)
            sinks = None if seen.sinks is None else seen.sinks[mine]
            self._enter(mine, rows.figures(seen.logits[mine], sinks), seen.end, skipped)

    def end_sample(self) -> None:
        """Close a sample: its means and its accumulated attention."""
        if self._sums is None:
            return
        count = self._sums[:, :1]
        entropy, normalized, top, variance, faint, visible = self._sums[:, 1:].T
        means = np.stack([entropy, normalized, top, variance], axis=1) / count
        sparsity = faint / visible
        self._beyond.append(self._outside / count.sum())
        self._samples.append(np.concatenate([means, sparsity[:, None]], axis=1))
        self._received.append([accumulated.summarize(each) for each in self._got])
        self._expected.append(accumulated.summarize(self._even))
        if self._builder is not None:
            self.maps, self._builder, self._mapped = self._builder.maps, None, False
        self._sums = None

    def profile(self, index: int, cache: str, kind: Kind, window: int | None) -> LayerProfile:
        """Return the layer's figures over all samples."""
        by_sample = np.stack(self._samples)  # [samples, heads, figures]
        over_heads = by_sample.mean(axis=1)
        group = by_sample.shape[1] // self._kv_heads
        by_kv_head = [
            accumulated.mean(list(each)) for each in zip(*self._received, strict=True)
        ]
        return LayerProfile(
            index=index,
            cache=cache,
            kind=kind,
            window=window,
            figures=Figures(*over_heads.mean(axis=0).tolist()),
            deviations=Figures(*over_heads.std(axis=0).tolist()),
            accumulated=accumulated.mean(by_kv_head),
            accumulated_evenly=accumulated.mean(self._expected),
            beyond=tuple(np.mean(self._beyond, axis=0).tolist()),
            heads=tuple(
                HeadProfile(i, i // group, Figures(*each))
                for i, each in enumerate(by_sample.mean(axis=0).tolist())
            ),
            kv_heads=tuple(by_kv_head),
        )

    def _begin(self, heads: int, kv_heads: int) -> None:
        self.heads, self._kv_heads = heads, kv_heads
        self._sums = np.zeros((heads, 7))
        self._got = np.zeros((kv_heads, self._tokens))
        self._even = np.zeros(self._tokens)
        self._outside = np.zeros(len(self._windows))
        if self._mapped:
            self._builder = MapBuilder(heads, self._tokens)

    def _enter(self, mine: slice, found: rows.Rows, end: int, skipped: int) -> None:
        assert self._sums is not None  # noqa: S101  _begin came first
        visible = found.visible
        normalized = found.entropy / mx.log(mx.maximum(visible, 2))
        by_row = [found.entropy, normalized, found.top, found.variance, found.faint, visible]
        counted = mx.stack([each.astype(mx.float32) for each in by_row])[..., skipped:]
        sums = np.array(counted.sum(axis=-1)).T.astype(np.float64)
        self._sums[mine, 0] += max(0, visible.shape[1] - skipped)
        self._sums[mine, 1:] += sums
        outside = reach.beyond(found.probabilities, end, self._windows)[:, skipped:]
        self._outside += np.array(outside.sum(axis=(0, 1))).astype(np.float64)
        tokens = slice(end - len(found.received), end)
        kv_head = mine.start // (mine.stop - mine.start)
        self._got[kv_head, tokens] += np.array(found.received)
        if mine.start == 0:
            self._even[tokens] += np.array(found.expected)
        if self._builder is not None:
            self._builder.add(mine.start, np.array(found.probabilities), end)
