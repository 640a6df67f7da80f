"""Budgets that differ from layer to layer, by the rule of "H2O on MLX" (March 2026).

    heavy_i = clip(0.5 + (ratio_i - 1) * 2.5, 0.3, 0.7) * available
    available = max_kv - sink_size, recent_i = available - heavy_i

ratio_i is the layer's measure over the mean of all layers with full attention. The paper
found no gain: perplexity 7.803 against 7.807 with the same budgets everywhere
(Qwen3-4B-4bit) and 6.324 against 6.320 (Qwen3-8B-4bit), max_kv 256, 10 x 512 tokens, its
table 14.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from h2o_pack.measure.errors import usage_error
from h2o_py.budgets import FORMAT, Budgets, LayerBudget

SLOPE = 2.5
LEAST_SHARE, MIDDLE, MOST_SHARE = 0.3, 0.5, 0.7
SAFE_RECENT = 64
"""Reproductions of H2O lost coherence with fewer recent tokens (H2OConfig warns)."""
_LEAST_AVAILABLE = 2
_DIGITS = 9

PUBLISHED = (
    "No gain was published for such budgets (H2O on MLX, table 14, max_kv 256): perplexity "
    "7.803 against 7.807 with equal budgets on Qwen3-4B-4bit, 6.324 against 6.320 on "
    "Qwen3-8B-4bit."
)


@dataclass(frozen=True)
class LayerMeasure:
    """What a profile says of one cache; figures are None where there is no budget to set.

    kind: "full", "sliding", "other", or "skipped".
    """

    index: int
    kind: str
    concentration: float | None
    entropy: float | None


@dataclass(frozen=True)
class LayerShare:
    """A layer with a budget: its measure's ratio to the mean, and what follows."""

    index: int
    ratio: float
    share: float
    budget: LayerBudget


def heavy_share(ratio: float) -> float:
    """Return the share of the available rows that is for heavy hitters, 0.3 to 0.7."""
    return min(max(MIDDLE + (ratio - 1) * SLOPE, LEAST_SHARE), MOST_SHARE)


def split(share: float, max_kv: int, sink_size: int) -> LayerBudget:
    """Split rows between heavy hitters and recent tokens.

    Recent tokens get at least 64 where that leaves heavy hitters their 0.3.

    Raises:
        UserError: max_kv leaves fewer than two rows.

    """
    available = max_kv - sink_size
    if available < _LEAST_AVAILABLE:
        raise usage_error(
            f"--max-kv {max_kv} leaves {available} rows beside {sink_size} sink tokens",
            f"Raise it to {sink_size + _LEAST_AVAILABLE} or more, or lower --sink-size.",
        )
    floor = max(1, round(LEAST_SHARE * available))
    heavy = min(max(round(share * available), 1), available - 1)
    heavy = max(floor, min(heavy, available - SAFE_RECENT))
    return LayerBudget(heavy, available - heavy)


def layer_shares(
    layers: Sequence[LayerMeasure], measure: str, max_kv: int, sink_size: int
) -> tuple[LayerShare, ...]:
    """Apply the rule to each layer with full attention.

    measure: "concentration", so that a layer whose attention rests on few tokens keeps
    more of them; or "entropy", so that one that spreads it does.

    Raises:
        UserError: no layer has full attention, or max_kv is too small.

    """
    values = {
        layer.index: value
        for layer in layers
        if layer.kind == "full" and (value := getattr(layer, measure)) is not None
    }
    if not values:
        raise usage_error(
            "the profile has no layer with full attention",
            "Choose another model: this one has nothing for H2O to bound.",
        )
    mean = sum(values.values()) / len(values)
    found = []
    for index, value in values.items():
        # Rounded, so that equal layers get equal rows whatever the sum's last bit is.
        ratio = round(value / mean, _DIGITS) if mean > 0 else 1.0
        share = heavy_share(ratio)
        found.append(LayerShare(index, ratio, share, split(share, max_kv, sink_size)))
    return tuple(found)


def budgets(by_index: Mapping[int, LayerBudget], caches: int) -> Budgets:
    """Return one entry per cache; None where the layer has no budget of its own."""
    return Budgets(tuple(by_index.get(i) for i in range(caches)))


def to_json(made: Budgets) -> str:
    """Return the text of the file that `h2o_py.budgets.load_budgets` and H2OBudgets read."""
    lines = ",\n".join(f"    {json.dumps(layer)}" for layer in made.to_dict()["layers"])
    return f'{{\n  "format": {FORMAT},\n  "layers": [\n{lines}\n  ]\n}}\n'
