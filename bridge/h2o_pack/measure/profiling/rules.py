"""Budgets of layers from a profile: by concentration, by reach, and where recall pays."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from h2o_py.config import POLICIES, H2OConfig
from h2o_py.errors import H2OConfigWarning

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
    """Split rows between heavy hitters and recent tokens; UserError for fewer than two.

    Recent tokens get at least 64 where that leaves heavy hitters their 0.3.
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

    By concentration a layer whose attention rests on few tokens keeps more of them, by entropy
    one that spreads it. Raises UserError: no layer has full attention, or max_kv is too small.
    """
    if not measures:
        raise usage_error(
            "the profile has no layer with full attention",
            "Choose another model: this one has nothing for H2O to bound.",
        )
    mean = sum(measures.values()) / len(measures)
    by_layer = {}
    for index, value in measures.items():
        # Rounded, so that equal layers get equal rows whatever the sum's last bit is.
        ratio = round(value / mean, _DIGITS) if mean > 0 else 1.0
        share = heavy_share(ratio)
        rows = split(share, max_kv, sink_size).to_dict()
        by_layer[index] = LayerResult(ratio=ratio, share=share, **rows)
    return by_layer


def budgets(
    by_index: Mapping[int, LayerResult], caches: int, recall: tuple[int, ...] | None = None
) -> Budgets:
    """Return one entry per cache, and the layers in which recall pays."""
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
    """Return the text of the file that `h2o_py.budgets.load_budgets` and H2OBudgets read."""
    document = layer_budgets.to_dict()
    lines = ",\n".join(f"    {json.dumps(layer)}" for layer in document["layers"])
    recall = f',\n  "recall": {json.dumps(document["recall"])}' if "recall" in document else ""
    return f'{{\n  "format": {FORMAT},\n  "layers": [\n{lines}\n  ]{recall}\n}}\n'


STEP = 4
"""Rows that a layer is given at once."""


@dataclass(frozen=True)
class Reach:
    """How far back a layer looks: the share of attention `beyond` each of the windows."""

    index: int
    windows: tuple[int, ...]
    beyond: tuple[float, ...]

    def lost(self, rows: int) -> float:
        """Return the share of attention that a window of `rows` rows loses, interpolated."""
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
    """Return how far the layers with full attention look; UserError if there is none."""
    curves = [
        Reach(layer.index, profile.windows, tuple(np.clip(layer.beyond, 0, 1).tolist()))
        for layer in profile.full
    ]
    if not curves or not profile.windows:
        raise usage_error(
            "the profile does not say how far layers with full attention look",
            "Profile the model again; one without such layers has nothing for H2O to bound.",
        )
    return curves


def allocate_rows(reaches: Sequence[Reach], max_kv: int) -> dict[int, int]:
    """Return rows by layer, exactly `max_kv` times the number of layers in all.

    Layers with equal curves get the same number of rows, or one more where the last
    rows cannot be divided evenly. Rows that gain nothing anywhere go to the layers with the
    fewest.
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
    """Give each layer its rows, `max_kv` on average, split as the policy does.

    Raises H2OError: h2o_py refuses so few rows.
    """
    by_layer = {}
    with warnings.catch_warnings():  # `Budgets.config_of` warns where caches are made
        warnings.simplefilter("ignore", H2OConfigWarning)
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


def lost_shares(reaches: Sequence[Reach], rows: Mapping[int, int]) -> dict[int, float]:
    """Return the share of each layer's attention that is older than a window of its rows."""
    # Rounded, so that equal layers are equal whatever the last bits of their sums are.
    return {reach.index: round(reach.lost(rows[reach.index]), _DIGITS) for reach in reaches}


def recalling_layers(reaches: Sequence[Reach], rows: Mapping[int, int]) -> tuple[int, ...]:
    """Return the indices of the layers in which recall pays; none if all rows are reached."""
    lost = lost_shares(reaches, rows)
    mean = round(sum(lost.values()) / len(lost), _DIGITS)
    return tuple(sorted(index for index, share in lost.items() if share >= mean and share > 0))


Measure = Literal["concentration", "entropy", "reach"]
OF_REACH = (
    "Rows go to the layers that look far back. lost: the share of attention that is older "
    "than a window of the layer's rows; what H2O keeps of it is not counted."
)


@dataclass(frozen=True)
class BudgetsRequest:
    """What budgets are asked for.

    max_kv: rows of each layer; with `measure` "reach", their average. measure: what layers are
    compared by: "concentration" or "entropy", for the share of their rows that heavy hitters
    get; "reach", for their number of rows, which the policy splits.
    """

    max_kv: int
    sink_size: int = 4
    measure: Measure = "concentration"
    policy: str = "standard"
    recall: bool = False
    output: Path | None = None


@dataclass(frozen=True, kw_only=True)
class BudgetsResult(Result):
    """Budgets by layer, and how they were made."""

    model: Annotated[str, doc("Its name.")]
    measure: Annotated[Measure, doc("What layers are compared by.")]
    max_kv: Annotated[int, doc("Rows of each layer, on average.")]
    sink_size: Annotated[int, doc("First tokens that always stay.")]
    output: Annotated[str | None, doc("The file that was written.")]
    note: Annotated[str, doc("What is known of such budgets.")]
    layers: Annotated[
        tuple[LayerResult | None, ...],
        doc("One per cache of the model; null where it has no budget of its own."),
    ]
    recall: Annotated[
        tuple[int, ...] | None,
        doc("Indices of the layers in which recall pays; null if not asked for."),
    ] = None


def make_budgets(
    profile: Path | None, options: Options, request: BudgetsRequest, say: ProgressReporter
) -> BudgetsResult:
    """Make budgets from a profile, or from one that is made now, and write their file.

    Raises UserError: the profile or the model cannot be used, or the file not be written.
    H2OError: h2o_py refuses so few rows.
    """
    measured = run(options, say)[0] if profile is None else read_profile(profile)
    if measured.unfit is not None:
        raise usage_error(
            f"{measured.model} cannot use H2O caches: {measured.unfit}", "Choose another model."
        )
    results = _by_rule(measured, request)
    recall = _recalling(measured, results, request) if request.recall else None
    if request.output is not None:
        layer_budgets = budgets(results, measured.caches, recall)
        with writing(request.output):
            request.output.parent.mkdir(parents=True, exist_ok=True)
            request.output.write_text(to_json(layer_budgets), encoding="utf-8")
    return BudgetsResult(
        model=measured.model,
        measure=request.measure,
        max_kv=request.max_kv,
        sink_size=request.sink_size,
        output=None if request.output is None else str(request.output),
        note=OF_REACH if request.measure == "reach" else PUBLISHED,
        layers=tuple(results.get(i) for i in range(measured.caches)),
        recall=recall,
    )


def _by_rule(profile: Profile, request: BudgetsRequest) -> dict[int, LayerResult]:
    rows, sinks = request.max_kv, request.sink_size
    if request.measure == "reach":
        policy = POLICIES[request.policy]
        return layer_rows(reaches(profile), rows, lambda size: policy(size, sink_size=sinks))
    measures = {layer.index: getattr(layer.figures, request.measure) for layer in profile.full}
    return layer_shares(measures, rows, sinks)


def _recalling(
    profile: Profile, results: dict[int, LayerResult], request: BudgetsRequest
) -> tuple[int, ...]:
    rows = {
        index: request.max_kv if layer.max_size is UNSET else layer.max_size
        for index, layer in results.items()
    }
    return recalling_layers(reaches(profile), rows)


def print_budgets(result: BudgetsResult, console: Console) -> None:
    """Show the table and what was published of such budgets."""
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
        console.print(f"layers in which recall pays: {layers}", markup=False)
    if result.output is not None:
        console.print(f"written to {result.output}", markup=False)
