"""Rows that differ from layer to layer with the same total: layers that look far get more.

All layers together have max_kv rows per layer. Each layer keeps half of max_kv; the
other half goes, a few rows at a time, to the layer where a longer window saves the most
attention per row (`reach.beyond`, a mean over the layer's heads).

Measured on the bundled demo model, whose last layer does nearly all looking back:
docs/results.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from h2o_pack.files.text import usage_error
from h2o_pack.measure.profiling.budget_rule import LayerResult
from h2o_pack.measure.profiling.report import Profile
from h2o_py.config import H2OConfig
from h2o_py.errors import H2OConfigWarning

STEP = 4
"""Rows that a layer is given at once."""
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
        """Return the share of attention that a window of so many rows loses, interpolated."""
        return float(np.interp(rows, self.windows, self.beyond))

    def saved(self, rows: int) -> float:
        """Return the attention per row that the best longer window saves."""
        here = self.lost(rows)
        further = [
            (here - kept) / (window - rows)
            for window, kept in zip(self.windows, self.beyond, strict=True)
            if window > rows
        ]
        return round(max(0.0, *further), _DIGITS) if further else 0.0


def reaches(profile: Profile) -> list[Reach]:
    """Return how far the layers with full attention look; shares are brought into 0 to 1.

    Raises:
        UserError: there is no such layer.

    """
    found = [
        Reach(each.index, profile.windows, tuple(np.clip(each.beyond, 0, 1).tolist()))
        for each in profile.full
    ]
    if not found or not profile.windows:
        raise usage_error(
            "the profile does not say how far layers with full attention look",
            "Profile the model again; one without such layers has nothing for H2O to bound.",
        )
    return found


def allocate_rows(reaches: Sequence[Reach], max_kv: int) -> dict[int, int]:
    """Return rows by layer, exactly `max_kv` times the number of layers in all.

    Layers with equal curves get the same number of rows, or one more where the last
    rows cannot be divided evenly. Rows that gain nothing anywhere go to the layers with the
    fewest.
    """
    equal: dict[Any, list[int]] = {}
    by_index = {each.index: each for each in reaches}
    for each in reaches:
        equal.setdefault((each.windows, each.beyond), []).append(each.index)
    groups = [(by_index[members[0]], members) for members in equal.values()]
    rows = dict.fromkeys(by_index, max_kv - max_kv // 2)
    left = max_kv // 2 * len(reaches)
    gains = [reach.saved(rows[reach.index]) for reach, _ in groups]
    while left:
        i = max(
            range(len(groups)),
            key=lambda i: (gains[i], -rows[groups[i][0].index], -groups[i][0].index),
        )
        reach, members = groups[i]
        given = min(STEP * len(members), left)
        for place, index in enumerate(members):
            rows[index] += given // len(members) + (place < given % len(members))
        left -= given
        gains[i] = reach.saved(rows[reach.index])
    return rows


def layer_rows(
    reaches: Sequence[Reach], max_kv: int, config_of: Callable[[int], H2OConfig]
) -> dict[int, LayerResult]:
    """Apply the rule to each layer with full attention; returns its budgets by layer.

    Args:
        reaches: of these layers.
        max_kv: rows of a layer, on average.
        config_of: the policy with so many rows, whose split each layer gets.

    Raises:
        H2OError: h2o_py refuses so few rows.

    """
    found = {}
    with warnings.catch_warnings():  # `Budgets.config_of` warns where caches are made
        warnings.simplefilter("ignore", H2OConfigWarning)
        by_index = {each.index: each for each in reaches}
        for index, rows in allocate_rows(reaches, max_kv).items():
            config = config_of(rows)
            found[index] = LayerResult(
                lost=by_index[index].lost(rows),
                heavy_budget=config.heavy_budget,
                recent_budget=config.recent_budget,
                max_size=rows,
            )
    return found
