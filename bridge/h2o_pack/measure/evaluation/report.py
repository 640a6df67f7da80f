"""Makes a report of what a run found."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from h2o_pack.measure.evaluation import ways
from h2o_pack.measure.evaluation.contenders import Contender
from h2o_pack.measure.evaluation.loaded import LoadedModel
from h2o_pack.measure.evaluation.lockstep import PREFILL
from h2o_pack.measure.evaluation.preset import Experiment, Preset, rows_of
from h2o_pack.measure.evaluation.results import (
    Cell,
    ExperimentResult,
    GroupResult,
    ModelIdentity,
    QuestionCount,
    Report,
)
from h2o_pack.measure.evaluation.run import FULL, CellKey, Unit
from h2o_pack.measure.evaluation.statistics import CONFIDENCE, compare, estimate, rounded
from h2o_pack.measure.machine import describe

LOWER_IS_BETTER = {
    "nll": True,
    "kl": True,
    "agreement": False,
    "recall": False,
    **{name: name.endswith(("_nll", "_kl")) for name in ways.METRICS},
    "tokens_per_second": False,
    "peak_bytes": True,
}
"""All metrics (`results.Cell`)."""


def make_report(
    loaded: LoadedModel,
    preset: Preset,
    tables: Sequence[Sequence[CellKey]],
    work: Sequence[Unit],
    found: Sequence[Any],
) -> Report:
    """Make the report of everything that a run found.

    Args:
        loaded: the model.
        preset: what was run.
        tables: cells by experiment.
        work: all units.
        found: what each unit gave (`h2o_pack.measure.evaluation.run.run`).

    """
    return Report(
        preset=preset.name,
        title=preset.title,
        model=ModelIdentity(loaded.name, loaded.sha256),
        text=loaded.text,
        seeds=preset.seeds,
        prefill=PREFILL,
        confidence=CONFIDENCE,
        machine=describe(),  # without its load, on which figures do not depend
        experiments=tuple(
            _experiment(experiment, loaded, cells, _gathered(i, work, found))
            for i, (experiment, cells) in enumerate(
                zip(preset.experiments, tables, strict=True)
            )
        ),
    )


Gathered = dict[tuple[int, Contender], list[Any]]
"""By length and contender: outcomes in the samples' order, or speeds."""


def _gathered(number: int, work: Sequence[Unit], found: Sequence[Any]) -> Gathered:
    gathered: Gathered = {}
    for unit, result in zip(work, found, strict=True):
        if unit.experiment != number:
            continue
        rows = [[result]] if isinstance(result, dict) else result
        for contender, outcomes in zip(unit.contenders, rows, strict=True):
            gathered.setdefault((unit.length, contender), []).extend(outcomes)
    return gathered


def _experiment(
    experiment: Experiment, loaded: LoadedModel, cells: Sequence[CellKey], gathered: Gathered
) -> ExperimentResult:
    groups = []
    for group, members in groupby(cells, key=lambda place: place.group):
        places = list(members)
        shown = tuple(_cell(place, places, loaded, gathered) for place in places)
        groups.append(GroupResult(group.id, group.title, group.equal, group.baseline, shown))
    return ExperimentResult(
        id=experiment.id,
        title=experiment.title,
        task=experiment.task,
        ask=experiment.ask,
        samples=experiment.samples,
        seeds=experiment.seeds,
        decoys=experiment.decoys,
        generate=experiment.generate,
        paper=experiment.paper,
        groups=tuple(groups),
    )


def _cell(
    place: CellKey, places: Sequence[CellKey], loaded: LoadedModel, gathered: Gathered
) -> Cell:
    contender, length = place.contender, place.length
    outcomes = gathered[length, contender]
    values = _values(outcomes)
    base = _baseline(place, places)
    other = base is not None and base is not place
    against = _values(gathered[length, base.contender]) if base and other else {}
    return Cell(
        length=length,
        budget=place.budget,
        budget_rows=length if place.budget == "all" else rows_of(place.budget, length),
        contender=contender.name,
        title=contender.title,
        rows=contender.rows or length,
        bytes=loaded.factory.bytes(contender, length),
        archive_bytes=loaded.factory.archive_bytes(contender, length),
        metrics={name: estimate(each).rounded() for name, each in values.items()},
        difference={
            name: compare(values[name], each, lower_is_better=LOWER_IS_BETTER[name]).rounded()
            for name, each in against.items()
        },
        by_sample={name: tuple(map(rounded, each)) for name, each in values.items()},
        questions=_questions(outcomes),
        kept=_kept(outcomes),
    )


def _baseline(place: CellKey, places: Sequence[CellKey]) -> CellKey | None:
    """Return the cell that this one is compared with: the baseline's of length and budget.

    The full cache, which has no budget, is compared where there is but one.
    """
    name = place.group.baseline
    only = not place.contender.bounded and len(place.group.budgets) == 1
    for each in places:
        same = each.length == place.length and each.contender.name == name
        if same and (only or each.budget == place.budget or each.contender == FULL):
            return each
    return None


def _values(outcomes: Sequence[Any]) -> dict[str, list[float]]:
    """Return each metric's values, one per sample or run."""
    if "tokens_per_second" in outcomes[0]:
        return {
            name: [float(x) for each in outcomes for x in each[name]]
            for name in ("tokens_per_second", "peak_bytes")
        }
    if "ways" in outcomes[0]:
        return {name: [o["ways"][name] for o in outcomes] for name in outcomes[0]["ways"]}
    values = {name: [o[name] for o in outcomes] for name in ("nll", "kl", "agreement")}
    if outcomes[0]["recalled"]:
        values["recall"] = [sum(o["recalled"]) / len(o["recalled"]) for o in outcomes]
    return values


def _questions(outcomes: Sequence[Any]) -> tuple[QuestionCount, ...]:
    """Count what was asked and answered, by depth of the fact and turn of the question."""
    counts: dict[tuple[float, int], list[int]] = {}
    for outcome in outcomes:
        for turn, right in enumerate(outcome.get("recalled", [])):
            count = counts.setdefault((outcome["depths"][turn], turn), [0, 0])
            count[0] += 1
            count[1] += right
    return tuple(
        QuestionCount(depth, turn, asked, right)
        for (depth, turn), (asked, right) in sorted(counts.items())
    )


def _kept(outcomes: Sequence[Any]) -> tuple[tuple[float, ...], ...]:
    """Return by layer the mean share of each part of the text that is still there."""
    kept = [outcome["kept"] for outcome in outcomes if outcome.get("kept")]
    return tuple(
        tuple(rounded(sum(parts) / len(parts)) for parts in zip(*layer, strict=True))
        for layer in zip(*kept, strict=True)
    )
