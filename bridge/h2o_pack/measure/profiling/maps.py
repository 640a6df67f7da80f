"""Attention maps small enough to look at: each cell is the largest probability in it."""

from __future__ import annotations

from typing import Any

import numpy as np

CELLS = 160

Array = np.ndarray[Any, np.dtype[Any]]


class MapBuilder:
    """Maps of all heads of a layer over one sample, built chunk by chunk.

    Args:
        heads: query heads.
        tokens: of the sample.

    """

    def __init__(self, heads: int, tokens: int) -> None:
        self._tokens, self._cells = tokens, min(CELLS, tokens)
        self.maps = np.zeros((heads, self._cells, self._cells), np.float32)
        """[heads, queries, tokens]; 0 where nothing could be seen."""

    def add(self, first_head: int, probabilities: Array, end: int) -> None:
        """Enter probabilities [G, L, N] whose newest query and token are before `end`."""
        group, queries, seen = probabilities.shape
        columns, column_starts = self._grid(end - seen, end)
        lines, line_starts = self._grid(end - queries, end)
        pooled = np.maximum.reduceat(probabilities, column_starts, axis=2)
        pooled = np.maximum.reduceat(pooled, line_starts, axis=1)
        held = self.maps[first_head : first_head + group]
        place = np.ix_(np.arange(group), lines, columns)
        held[place] = np.maximum(held[place], pooled)

    def _grid(self, begin: int, end: int) -> tuple[Array, Array]:
        """Return the cells of positions begin..end-1, and where the first of each one is."""
        cells = np.arange(begin, end) * self._cells // self._tokens
        return np.unique(cells, return_index=True)
