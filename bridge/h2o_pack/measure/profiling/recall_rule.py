"""The layers in which recall pays: those that look past their rows more than the mean layer.

A layer whose attention stays within its rows asks for nothing that was evicted. Layers that
look back alike are all chosen.

On the bundled demo model one layer of four is chosen. Recall in that layer alone found every
fact, and recall in the other three found none (docs/results).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from h2o_pack.measure.profiling.row_rule import Reach

_DIGITS = 9


def lost_shares(reaches: Sequence[Reach], rows: Mapping[int, int]) -> dict[int, float]:
    """Return the share of each layer's attention that is older than a window of its rows."""
    # Rounded, so that equal layers are equal whatever the last bits of their sums are.
    return {each.index: round(each.lost(rows[each.index]), _DIGITS) for each in reaches}


def recalling_layers(reaches: Sequence[Reach], rows: Mapping[int, int]) -> tuple[int, ...]:
    """Return the indices of the layers in which recall pays; none if all rows are reached.

    Args:
        reaches: how far the layers with full attention look.
        rows: of each of these layers.

    """
    lost = lost_shares(reaches, rows)
    mean = round(sum(lost.values()) / len(lost), _DIGITS)
    return tuple(sorted(index for index, share in lost.items() if share >= mean and share > 0))
