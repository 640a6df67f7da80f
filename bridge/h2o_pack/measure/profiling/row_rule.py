"""Rows that differ from layer to layer, the same in all: a layer that looks far has more.

The rows of all layers together are max_kv a layer. Each layer keeps half of max_kv; the
other half is dealt out, a few rows at a time, to the layer where a window that is so much
longer saves most attention a row (`reach.beyond`, a mean over the layer's heads).

Measured on the embedded model, whose last layer does nearly all looking back: docs/results.
"""

from __future__ import annotations

import bisect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from h2o_py.budgets import Budgets, LayerBudget
from h2o_py.config import POLICIES
from h2o_py.errors import H2OConfigWarning

STEP = 4
"""Rows that are dealt out at once."""
_DIGITS = 9


@dataclass(frozen=True)
class Reach:
    """How far back the attention of a cache's layer looks.

    windows: tokens, increasing. beyond: the share of attention that is older than each.
    """

    index: int
    windows: tuple[int, ...]
    beyond: tuple[float, ...]

    def lost(self, rows: int) -> float:
        """The share of attention that a window of so many rows loses, interpolated."""
        i = bisect.bisect_left(self.windows, rows)
        if i == len(self.windows):
            return self.beyond[-1]
        if i == 0:
            return self.beyond[0]
        begin, end = self.windows[i - 1], self.windows[i]
        part = (rows - begin) / (end - begin)
        return self.beyond[i - 1] + part * (self.beyond[i] - self.beyond[i - 1])

    def saved(self, rows: int) -> float:
        """The attention a row that the best longer window saves; farther ones count too."""
        here = self.lost(rows)
        further = [
            (here - kept) / (window - rows)
            for window, kept in zip(self.windows, self.beyond, strict=True)
            if window > rows
        ]
        # Rounded, so that layers alike are alike whatever the last bit is.
        return round(max(0.0, *further), _DIGITS) if further else 0.0


@dataclass(frozen=True)
class LayerRows:
    """Rows of a layer, what it loses as a window of them, and its budgets."""

    index: int
    lost: float
    budget: LayerBudget


def told(reaches: Sequence[Reach]) -> Sequence[Reach]:
    """The same, if there are any.

    Raises:
        ValueError: there is no layer to deal rows to, or the profile does not tell.

    """
    if not reaches:
        raise ValueError(
            "the profile does not tell how far layers with full attention look. Profile the "
            "model again; one without such layers has nothing for H2O to bound."
        )
    return reaches


def deal(reaches: Sequence[Reach], max_kv: int) -> dict[int, int]:
    """Rows by layer, `max_kv` times the layers in all.

    What no layer gains from is dealt to all alike.
    """
    rows = dict.fromkeys((each.index for each in reaches), max_kv - max_kv // 2)
    left = max_kv // 2 * len(reaches)
    gains = {each.index: each.saved(rows[each.index]) for each in reaches}
    by_index = {each.index: each for each in reaches}
    while left:
        step = min(STEP, left)
        best = max(rows, key=lambda index: (gains[index], -rows[index], -index))
        rows[best] += step
        left -= step
        gains[best] = by_index[best].saved(rows[best])
    return rows


def layer_rows(
    reaches: Sequence[Reach], max_kv: int, sink_size: int, policy: str = "standard"
) -> tuple[LayerRows, ...]:
    """The rule, for each layer with full attention.

    Args:
        reaches: of these layers.
        max_kv: rows of a layer, on average.
        sink_size: first tokens that always stay.
        policy: whose split between heavy hitters and recent tokens each layer gets.

    Raises:
        ValueError: there is no such layer, or max_kv is too small.

    """
    dealt = deal(told(reaches), max_kv)
    found = []
    with warnings.catch_warnings():  # `config_of` tells it where caches are made
        warnings.simplefilter("ignore", H2OConfigWarning)
        for each, rows in zip(reaches, dealt.values(), strict=True):
            config = POLICIES[policy](rows, sink_size=sink_size)
            budget = LayerBudget(config.heavy_budget, config.recent_budget, rows)
            found.append(LayerRows(each.index, each.lost(rows), budget))
    return tuple(found)


def budgets(found: Sequence[LayerRows], caches: int) -> Budgets:
    """One entry a cache; None where the layer has no budget of its own."""
    by_index: Mapping[int, LayerBudget] = {each.index: each.budget for each in found}
    return Budgets(tuple(by_index.get(i) for i in range(caches)))
