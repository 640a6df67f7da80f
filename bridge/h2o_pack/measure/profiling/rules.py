"""Makes budgets by layer from a profile, and selects the layers that recall.

The reach of a layer is how far back its attention looks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Struct
from rich.console import Console

from h2o_pack.errors import usage_error
from h2o_pack.files.text import writing
from h2o_pack.measure.profiling.profile_report import Profile
from h2o_pack.measure.tables import Table, print_table
from h2o_pack.printing import caption
from h2o_pack.results import Result, doc
from h2o_py.budgets import FORMAT, Budgets, LayerBudget
from h2o_py.config import POLICIES, H2OConfig, without_warnings

_DIGITS = 9


class LayerResult(Struct, frozen=True, kw_only=True):
    """A layer's budgets, and the figures that they were computed from."""

    lost: Annotated[
        float,
        doc("Share of attention on tokens before a window of as many tokens as the rows."),
    ]
    heavy_budget: Annotated[int, doc("Rows for heavy hitters.")]
    recent_budget: Annotated[int, doc("Newest tokens that the cache always keeps.")]
    max_size: Annotated[int, doc("Rows of the layer.")]


def budgets(
    by_index: Mapping[int, LayerResult], caches: int, recall: tuple[int, ...] | None = None
) -> Budgets:
    """Return h2o_py's budgets: an entry for each of the model's `caches`, and `recall`.

    recall: indices of the layers that recall; None for all layers.
    """
    return Budgets(
        tuple(
            LayerBudget(layer.heavy_budget, layer.recent_budget, layer.max_size)
            if (layer := by_index.get(i))
            else None
            for i in range(caches)
        ),
        recall=recall,
    )


def to_json(layer_budgets: Budgets) -> str:
    """Return the JSON text that `h2o_py.budgets.load_budgets` and Swift's H2OBudgets read."""
    document = layer_budgets.to_dict()
    lines = ",\n".join(f"    {json.dumps(layer)}" for layer in document["layers"])
    recall = f',\n  "recall": {json.dumps(document["recall"])}' if "recall" in document else ""
    return f'{{\n  "format": {FORMAT},\n  "layers": [\n{lines}\n  ]{recall}\n}}\n'


STEP = 4
"""The number of rows that `allocate_rows` gives to a layer at once."""


@dataclass(frozen=True)
class Reach:
    """How far back a layer's attention looks.

    beyond: for each window, the share of attention on tokens before it.
    """

    index: int
    windows: tuple[int, ...]
    beyond: tuple[float, ...]

    def lost(self, rows: int) -> float:
        """Return the share of attention that a window of `rows` tokens loses, interpolated."""
        return float(np.interp(rows, self.windows, self.beyond))

    def saved(self, rows: int) -> float:
        """Return the attention saved per added row by the best longer window."""
        lost = self.lost(rows)
        saved_by_row = [
            (lost - still_lost) / (window - rows)
            for window, still_lost in zip(self.windows, self.beyond, strict=True)
            if window > rows
        ]
        return round(max(0.0, *saved_by_row), _DIGITS) if saved_by_row else 0.0


def reaches(profile: Profile) -> list[Reach]:
    """Return how far back each layer with full attention looks.

    Raises UserError: no layer has full attention, or the profile has no windows.
    """
    curves = [
        Reach(layer.index, profile.windows, tuple(np.clip(layer.beyond, 0, 1).tolist()))
        for layer in profile.full
    ]
    if not curves or not profile.windows:
        raise usage_error(
            "the profile does not say how far layers with full attention look",
            "Profile the model again. If it has no such layers, H2O cannot bound its cache.",
        )
    return curves


def allocate_rows(reaches: Sequence[Reach], max_kv: int) -> dict[int, int]:
    """Divide `max_kv` times the number of layers into rows by layer index.

    Layers with equal curves get equal numbers of rows, or numbers that differ by one if the
    last rows cannot be divided evenly. When no layer gains from more rows, the remaining rows
    go to the layers with the fewest.
    """
    equal: dict[Any, list[int]] = {}
    by_index = {reach.index: reach for reach in reaches}
    for reach in reaches:
        equal.setdefault((reach.windows, reach.beyond), []).append(reach.index)
    groups = [(by_index[members[0]], members) for members in equal.values()]
    rows = dict.fromkeys(by_index, max_kv - max_kv // 2)
    remaining = max_kv // 2 * len(reaches)
    gains = [reach.saved(rows[reach.index]) for reach, _ in groups]
    while remaining:
        i = max(
            range(len(groups)),
            key=lambda i: (gains[i], -rows[groups[i][0].index], -groups[i][0].index),
        )
        reach, members = groups[i]
        added = min(STEP * len(members), remaining)
        for place, index in enumerate(members):
            rows[index] += added // len(members) + (place < added % len(members))
        remaining -= added
        gains[i] = reach.saved(rows[reach.index])
    return rows


def layer_rows(
    reaches: Sequence[Reach], max_kv: int, config_of: Callable[[int], H2OConfig]
) -> dict[int, LayerResult]:
    """Divide rows between the layers, `max_kv` on average, and split them by the policy.

    config_of: returns the policy's configuration for a number of rows. Raises H2OError: h2o_py
    refuses a layer's rows, because they are too few.
    """
    by_layer = {}
    with without_warnings():  # the user sees them when `Budgets.config_of` makes caches
        by_index = {reach.index: reach for reach in reaches}
        for index, rows in allocate_rows(reaches, max_kv).items():
            config = config_of(rows)
            by_layer[index] = LayerResult(
                lost=by_index[index].lost(rows),
                heavy_budget=config.heavy_budget,
                recent_budget=config.recent_budget,
                max_size=rows,
            )
    return by_layer


RETRIEVING = 0.05
"""The least retrieval of a layer that recalls, as a share of the largest of a layer."""


def recalling_layers(profile: Profile) -> tuple[int, ...]:
    """Return the indices of the layers that find a repeated passage.

    These are the layers with full attention whose retrieval is at least RETRIEVING times the
    largest.
    """
    most = max((layer.retrieval for layer in profile.full), default=0.0)
    least = RETRIEVING * most
    return tuple(layer.index for layer in profile.full if layer.retrieval >= least > 0)


NOTE = (
    "Layers that look far back get more rows. lost: the share of attention on tokens before a "
    "window of as many tokens as the layer has rows. H2O keeps part of it, which is not "
    "subtracted."
)


@dataclass(frozen=True, kw_only=True)
class BudgetsResult(Result):
    """Budgets by layer, and how they were made."""

    model: Annotated[str, doc("The model's name.")]
    max_kv: Annotated[int, doc("Rows of each layer, on average.")]
    sink_size: Annotated[int, doc("First tokens that the cache always keeps.")]
    output: Annotated[str, doc("The file that was written.")]
    layers: Annotated[
        tuple[LayerResult | None, ...],
        doc("An entry per cache of the model; null for a cache without a budget."),
    ]
    recall: Annotated[
        tuple[int, ...] | None,
        doc("Indices of the layers that should recall; null if not asked for."),
    ] = None


def make_budgets(
    profile: Profile,
    *,
    max_kv: int,
    sink_size: int,
    policy: str,
    recall: bool,
    output: Path,
) -> BudgetsResult:
    """Make budgets from a profile and write their file.

    max_kv: rows per KV head of each layer, on average. policy: splits a layer's rows. recall:
    whether to select the layers that recall. Raises UserError: the model cannot have H2O
    caches, or the file cannot be written. H2OError: h2o_py refuses a layer's rows, because they
    are too few.
    """
    if profile.unfit is not None:
        raise usage_error(
            f"{profile.model} cannot use H2O caches: {profile.unfit}", "Choose another model."
        )
    config_of = partial(POLICIES[policy], sink_size=sink_size)
    results = layer_rows(reaches(profile), max_kv, config_of)
    recalling = recalling_layers(profile) if recall else None
    with writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(to_json(budgets(results, profile.caches, recalling)), "utf-8")
    return BudgetsResult(
        model=profile.model,
        max_kv=max_kv,
        sink_size=sink_size,
        output=str(output),
        layers=tuple(results.get(i) for i in range(profile.caches)),
        recall=recalling,
    )


def print_budgets(result: BudgetsResult, console: Console) -> None:
    """Show the table of budgets, and what is known about them."""
    rows = [
        (str(i), "", "the model's own cache", "", "")
        if layer is None
        else (
            str(i),
            str(layer.max_size),
            f"{layer.lost:.2%}",
            str(layer.heavy_budget),
            str(layer.recent_budget),
        )
        for i, layer in enumerate(result.layers)
    ]
    title = (
        f"{result.model}: {result.max_kv} rows per layer on average, {result.sink_size} of "
        "them sinks"
    )
    header = ("layer", "rows", "lost", "heavy", "recent")
    print_table(Table(title, header, tuple(rows), NOTE), console)
    if result.recall is not None:
        layers = ", ".join(map(str, result.recall)) or "none"
        caption(f"layers that recall: {layers}", console, "")
    console.print(f"written to {result.output}", markup=False)
