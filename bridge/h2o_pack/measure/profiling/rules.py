"""Makes budgets by layer from a profile, and selects the layers that recall.

The reach of a layer is how far back its attention looks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from rich.console import Console

from h2o_pack.errors import usage_error
from h2o_pack.files.text import writing
from h2o_pack.measure.profiling.options import Options
from h2o_pack.measure.profiling.report import Profile, read_profile
from h2o_pack.measure.profiling.run import run
from h2o_pack.measure.tables import Table, print_table
from h2o_pack.progress import ProgressReporter
from h2o_pack.results import Result, doc
from h2o_py.budgets import FORMAT, Budgets, LayerBudget
from h2o_py.config import POLICIES, H2OConfig, without_warnings

SLOPE = 2.5
LEAST_SHARE, MIDDLE, MOST_SHARE = 0.3, 0.5, 0.7
SAFE_RECENT = 64
"""Fewer recent tokens made the text of H2O reproductions incoherent (H2OConfig warns)."""
_LEAST_AVAILABLE = 2
_DIGITS = 9

PUBLISHED = (
    "No gain was published for such budgets (H2O on MLX, table 14, max_kv 256): perplexity "
    "7.803 against 7.807 with equal budgets on Qwen3-4B-4bit, 6.324 against 6.320 on "
    "Qwen3-8B-4bit."
)


class LayerResult(Struct, frozen=True, kw_only=True):
    """A layer's budgets, and the figures that they were computed from."""

    ratio: Annotated[
        float | UnsetType, doc("The layer's measure, divided by the mean of all layers.")
    ] = UNSET
    share: Annotated[
        float | UnsetType, doc("Share of heavy hitters in the rows that are not sinks.")
    ] = UNSET
    lost: Annotated[
        float | UnsetType,
        doc("Share of attention on tokens before a window of as many tokens as the rows."),
    ] = UNSET
    heavy_budget: Annotated[int, doc("Rows for heavy hitters.")]
    recent_budget: Annotated[int, doc("Newest tokens that the cache always keeps.")]
    max_size: int | UnsetType = UNSET


def heavy_share(ratio: float) -> float:
    """Return the share of the rows for heavy hitters, 0.3 to 0.7.

    ratio: the layer's measure, divided by the mean of all layers.
    """
    return min(max(MIDDLE + (ratio - 1) * SLOPE, LEAST_SHARE), MOST_SHARE)


def split(share: float, max_kv: int, sink_size: int) -> LayerBudget:
    """Split the rows that are not sinks between heavy hitters and recent tokens.

    Recent tokens get at least 64 rows, if heavy hitters still get 0.3 of the rows. Raises
    UserError: there are fewer than two rows besides the sinks.
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
    """Compute budgets from each layer's measure; both are by layer index.

    The higher a layer's measure, the more of its rows are for heavy hitters. Raises UserError:
    no layer has full attention, or max_kv is too small.
    """
    if not measures:
        raise usage_error(
            "the profile has no layer with full attention",
            "Choose another model: H2O cannot bound the cache of this one.",
        )
    mean = sum(measures.values()) / len(measures)
    by_layer = {}
    for index, value in measures.items():
        # Rounding keeps a sum's last bit from giving equal layers different rows.
        ratio = round(value / mean, _DIGITS) if mean > 0 else 1.0
        share = heavy_share(ratio)
        rows = split(share, max_kv, sink_size).to_dict()
        by_layer[index] = LayerResult(ratio=ratio, share=share, **rows)
    return by_layer


def budgets(
    by_index: Mapping[int, LayerResult], caches: int, recall: tuple[int, ...] | None = None
) -> Budgets:
    """Return h2o_py's budgets: an entry for each of the model's `caches`, and `recall`.

    recall: indices of the layers that recall; None for all layers.
    """
    return Budgets(
        tuple(
            LayerBudget(
                layer.heavy_budget,
                layer.recent_budget,
                None if layer.max_size is UNSET else layer.max_size,
            )
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
"""The least votes of a layer that recalls, as a share of the most votes of a layer."""


def recalling_layers(profile: Profile) -> tuple[int, ...]:
    """Return the indices of the layers that find a repeated passage.

    These are the layers with full attention that give it at least RETRIEVING times the votes of
    the layer that gives it most.
    """
    most = max((layer.votes for layer in profile.full), default=0.0)
    return tuple(layer.index for layer in profile.full if layer.votes >= RETRIEVING * most > 0)


Measure = Literal["concentration", "entropy", "reach"]
OF_REACH = (
    "Layers that look far back get more rows. lost: the share of attention on tokens before a "
    "window of as many tokens as the layer has rows. H2O keeps part of it, which is not "
    "subtracted."
)


@dataclass(frozen=True, kw_only=True)
class BudgetsResult(Result):
    """Budgets by layer, and how they were made."""

    model: Annotated[str, doc("The model's name.")]
    measure: Annotated[Measure, doc("The figure that layers are compared by.")]
    max_kv: Annotated[int, doc("Rows of each layer, on average.")]
    sink_size: Annotated[int, doc("First tokens that the cache always keeps.")]
    output: Annotated[str | None, doc("The file that was written.")]
    note: Annotated[str, doc("What is known about budgets by this measure.")]
    layers: Annotated[
        tuple[LayerResult | None, ...],
        doc("An entry per cache of the model; null for a cache without a budget."),
    ]
    recall: Annotated[
        tuple[int, ...] | None,
        doc("Indices of the layers that should recall; null if not asked for."),
    ] = None


def make_budgets(
    profile: Path | None,
    options: Options,
    say: ProgressReporter,
    *,
    max_kv: int,
    sink_size: int,
    measure: Measure,
    policy: str,
    recall: bool,
    output: Path | None,
) -> BudgetsResult:
    """Make budgets from a profile and write their file.

    profile: a profile.json; None to profile the model of `options` now. max_kv: rows per KV
    head of each layer; with `measure` "reach", their average. measure: the figure that layers
    are compared by. "concentration" and "entropy" decide the share of a layer's rows that heavy
    hitters get; "reach" decides the number of its rows, which the policy splits. recall:
    whether to select the layers that recall. output: the file to write. Raises UserError: the
    profile or the model cannot be used, or the file cannot be written. H2OError: h2o_py refuses
    a layer's rows, because they are too few.
    """
    measured = run(options, say)[0] if profile is None else read_profile(profile)
    if measured.unfit is not None:
        raise usage_error(
            f"{measured.model} cannot use H2O caches: {measured.unfit}", "Choose another model."
        )
    if measure == "reach":
        config_of = partial(POLICIES[policy], sink_size=sink_size)
        results = layer_rows(reaches(measured), max_kv, config_of)
    else:
        figures = {layer.index: getattr(layer.figures, measure) for layer in measured.full}
        results = layer_shares(figures, max_kv, sink_size)
    recalling = recalling_layers(measured) if recall else None
    if output is not None:
        layer_budgets = budgets(results, measured.caches, recalling)
        with writing(output):
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(to_json(layer_budgets), encoding="utf-8")
    return BudgetsResult(
        model=measured.model,
        measure=measure,
        max_kv=max_kv,
        sink_size=sink_size,
        output=None if output is None else str(output),
        note=OF_REACH if measure == "reach" else PUBLISHED,
        layers=tuple(results.get(i) for i in range(measured.caches)),
        recall=recalling,
    )


def print_budgets(result: BudgetsResult, console: Console) -> None:
    """Show the table of budgets, and what is known about them."""
    reach = result.measure == "reach"
    rows = []
    for i, layer in enumerate(result.layers):
        if layer is None:
            rows.append((str(i), "", "", "the model's own cache", ""))
            continue
        why = (
            (str(layer.max_size), f"{layer.lost:.2%}")
            if reach
            else (f"{layer.ratio:.3f}", f"{layer.share:.2f}")
        )
        rows.append((str(i), *why, str(layer.heavy_budget), str(layer.recent_budget)))
    average = " per layer on average" if reach else ""
    title = f"{result.model}: {result.max_kv} rows{average}, {result.sink_size} of them sinks"
    why = ("rows", "lost") if reach else (f"{result.measure} / mean", "share")
    print_table(
        Table(title, ("layer", *why, "heavy", "recent"), tuple(rows), result.note), console
    )
    if result.recall is not None:
        layers = ", ".join(map(str, result.recall)) or "none"
        console.print(f"layers that recall: {layers}", markup=False)
    if result.output is not None:
        console.print(f"written to {result.output}", markup=False)
