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
from collections.abc import Mapping
from typing import Annotated

from msgspec import UNSET, Struct, UnsetType

from h2o_pack.files.text import usage_error
from h2o_pack.results import doc
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


class LayerResult(Struct, frozen=True, kw_only=True):
    """A layer's budgets, and the figures that they follow from."""

    ratio: Annotated[float | UnsetType, doc("The layer's measure over the mean of all.")] = (
        UNSET
    )
    share: Annotated[
        float | UnsetType, doc("Of heavy hitters in the rows beside the sinks.")
    ] = UNSET
    lost: Annotated[float | UnsetType, doc("Attention older than a window of the rows.")] = (
        UNSET
    )
    heavy_budget: Annotated[int, doc("Rows for heavy hitters.")]
    recent_budget: Annotated[int, doc("Newest tokens that stay.")]
    max_size: int | UnsetType = UNSET


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
    measures: Mapping[int, float], max_kv: int, sink_size: int
) -> dict[int, LayerResult]:
    """Apply the rule to the measures of the layers with full attention, by layer.

    The measure is concentration, so that a layer whose attention rests on few tokens keeps
    more of them; or entropy, so that one that spreads it does.

    Raises:
        UserError: no layer has full attention, or max_kv is too small.

    """
    if not measures:
        raise usage_error(
            "the profile has no layer with full attention",
            "Choose another model: this one has nothing for H2O to bound.",
        )
    mean = sum(measures.values()) / len(measures)
    found = {}
    for index, value in measures.items():
        # Rounded, so that equal layers get equal rows whatever the sum's last bit is.
        ratio = round(value / mean, _DIGITS) if mean > 0 else 1.0
        share = heavy_share(ratio)
        rows = split(share, max_kv, sink_size).to_dict()
        found[index] = LayerResult(ratio=ratio, share=share, **rows)
    return found


def budgets(
    by_index: Mapping[int, LayerResult], caches: int, recall: tuple[int, ...] | None = None
) -> Budgets:
    """Return one entry per cache; None where the layer has no budget of its own.

    recall: the layers in which recall pays.
    """
    return Budgets(
        tuple(
            LayerBudget(
                found.heavy_budget,
                found.recent_budget,
                None if found.max_size is UNSET else found.max_size,
            )
            if (found := by_index.get(i))
            else None
            for i in range(caches)
        ),
        recall=recall,
    )


def to_json(made: Budgets) -> str:
    """Return the text of the file that `h2o_py.budgets.load_budgets` and H2OBudgets read."""
    document = made.to_dict()
    lines = ",\n".join(f"    {json.dumps(layer)}" for layer in document["layers"])
    recall = f',\n  "recall": {json.dumps(document["recall"])}' if "recall" in document else ""
    return f'{{\n  "format": {FORMAT},\n  "layers": [\n{lines}\n  ]{recall}\n}}\n'
