"""Budgets that differ from layer to layer, made from a profile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import UNSET
from rich.console import Console

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files.text import writing
from h2o_pack.measure.profiling import recall_rule, row_rule
from h2o_pack.measure.profiling.budget_rule import (
    PUBLISHED,
    LayerResult,
    budgets,
    layer_shares,
    to_json,
)
from h2o_pack.measure.profiling.options import Options
from h2o_pack.measure.profiling.report import Profile, read_profile
from h2o_pack.measure.profiling.run import run
from h2o_pack.measure.tables import Table, print_table
from h2o_pack.progress import ProgressReporter
from h2o_pack.results import Result, doc
from h2o_py.config import POLICIES

Measure = Literal["concentration", "entropy", "reach"]
OF_REACH = (
    "Rows go to the layers that look far back. lost: the share of attention that is older "
    "than a window of the layer's rows; what H2O keeps of it is not counted."
)


@dataclass(frozen=True)
class BudgetsRequest:
    """What budgets are asked for.

    Args:
        max_kv: rows of each layer; with `measure` "reach", their average.
        sink_size: first tokens that always stay.
        measure: what a layer is compared by: "concentration" or "entropy", for the share of
            its rows that heavy hitters get; "reach", for its number of rows.
        policy: with "reach", the policy that splits a layer's rows.
        recall: whether to name the layers in which recall pays.
        output: file to write.

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
    """Make budgets and write their file.

    Args:
        profile: a profile.json; None profiles a model now.
        options: the model to profile.
        request: what budgets are asked for.
        say: told what is being done.

    Raises:
        UserError: the profile or the model cannot be used, or the file not be written.
        H2OError: h2o_py refuses so few rows.

    """
    found = run(options, say)[0] if profile is None else read_profile(profile)
    if found.unfit is not None:
        raise UserError(
            f"{found.model} cannot use H2O caches: {found.unfit}",
            remedy="Choose another model.",
            code=ExitCode.USAGE,
        )
    results = _by_rule(found, request)
    recall = _recalling(found, results, request) if request.recall else None
    if request.output is not None:
        made = budgets(results, found.caches, recall)
        with writing(request.output):
            request.output.parent.mkdir(parents=True, exist_ok=True)
            request.output.write_text(to_json(made), encoding="utf-8")
    return BudgetsResult(
        model=found.model,
        measure=request.measure,
        max_kv=request.max_kv,
        sink_size=request.sink_size,
        output=None if request.output is None else str(request.output),
        note=OF_REACH if request.measure == "reach" else PUBLISHED,
        layers=tuple(results.get(i) for i in range(found.caches)),
        recall=recall,
    )


def _by_rule(profile: Profile, request: BudgetsRequest) -> dict[int, LayerResult]:
    rows, sinks = request.max_kv, request.sink_size
    if request.measure == "reach":
        policy = POLICIES[request.policy]
        return row_rule.layer_rows(
            row_rule.reaches(profile), rows, lambda size: policy(size, sink_size=sinks)
        )
    measures = {each.index: getattr(each.figures, request.measure) for each in profile.full}
    return layer_shares(measures, rows, sinks)


def _recalling(
    profile: Profile, results: dict[int, LayerResult], request: BudgetsRequest
) -> tuple[int, ...]:
    rows = {
        index: request.max_kv if layer.max_size is UNSET else layer.max_size
        for index, layer in results.items()
    }
    return recall_rule.recalling_layers(row_rule.reaches(profile), rows)


def print_budgets(made: BudgetsResult, console: Console) -> None:
    """Show the table and what was published of such budgets."""
    reach = made.measure == "reach"
    rows = []
    for i, layer in enumerate(made.layers):
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
    title = f"{made.model}: {made.max_kv} rows{average}, {made.sink_size} of them sinks"
    why = ("rows", "lost") if reach else (f"{made.measure} / mean", "share")
    print_table(
        Table(title, ("layer", *why, "heavy", "recent"), tuple(rows), made.note), console
    )
    if made.recall is not None:
        chosen = ", ".join(map(str, made.recall)) or "none"
        console.print(f"layers in which recall pays: {chosen}", markup=False)
    if made.output is not None:
        console.print(f"written to {made.output}", markup=False)
