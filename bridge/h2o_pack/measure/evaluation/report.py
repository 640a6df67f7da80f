"""A run's results as one JSON document (schema: bridge/h2o_pack/schemas/eval.json).

Pages, pictures and comparisons are made from the document alone, so that committed results
can be shown and checked again without a run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from h2o_pack.measure.bench.machine import describe
from h2o_pack.measure.evaluation.entrants import Entrant
from h2o_pack.measure.evaluation.loaded import Loaded
from h2o_pack.measure.evaluation.lockstep import PREFILL
from h2o_pack.measure.evaluation.preset import Experiment, Preset, rows_of
from h2o_pack.measure.evaluation.run import FULL, Place, Unit
from h2o_pack.measure.evaluation.statistics import CONFIDENCE, Estimate, compare, estimate

FORMAT = 1
LOWER_IS_BETTER = {
    "nll": True,
    "kl": True,
    "agreement": False,
    "recall": False,
    "tokens_per_second": False,
    "peak_bytes": True,
}
"""All metrics: nats a token, nats a token, shares of tokens and questions, and speed."""
_DIGITS = 6


def document(
    loaded: Loaded,
    preset: Preset,
    tables: Sequence[Sequence[Place]],
    work: Sequence[Unit],
    found: Sequence[Any],
) -> dict[str, Any]:
    """Everything that a run found.

    Args:
        loaded: the model.
        preset: what was run.
        tables: cells by experiment.
        work: all units.
        found: what each unit gave (`h2o_pack.measure.evaluation.run.run`).

    """
    machine = asdict(describe())
    del machine["load"]  # changes from run to run, and figures do not depend on it
    return {
        "format": FORMAT,
        "preset": preset.name,
        "title": preset.title,
        "model": {"name": loaded.name, "parameters_sha256": loaded.sha256},
        "text": loaded.text,
        "seeds": list(preset.seeds),
        "prefill": PREFILL,
        "confidence": CONFIDENCE,
        "machine": machine,
        "experiments": [
            _experiment(experiment, loaded, cells, _gathered(i, work, found))
            for i, (experiment, cells) in enumerate(
                zip(preset.experiments, tables, strict=True)
            )
        ],
    }


Gathered = dict[tuple[int, Entrant], list[Any]]
"""By length and entrant: outcomes in the samples' order, or speeds."""


def _gathered(number: int, work: Sequence[Unit], found: Sequence[Any]) -> Gathered:
    gathered: Gathered = {}
    for unit, result in zip(work, found, strict=True):
        if unit.experiment != number:
            continue
        rows = [[result]] if isinstance(result, dict) else result
        for entrant, outcomes in zip(unit.entrants, rows, strict=True):
            gathered.setdefault((unit.length, entrant), []).extend(outcomes)
    return gathered


def _experiment(
    experiment: Experiment, loaded: Loaded, cells: Sequence[Place], gathered: Gathered
) -> dict[str, Any]:
    groups = []
    for group, members in groupby(cells, key=lambda place: place.group):
        places = list(members)
        groups.append(
            {
                "id": group.id,
                "title": group.title,
                "equal": group.equal,
                "baseline": group.baseline,
                "cells": [_cell(place, places, loaded, gathered) for place in places],
            }
        )
    return {
        "id": experiment.id,
        "title": experiment.title,
        "task": experiment.task,
        "ask": experiment.ask,
        "samples": experiment.samples,
        "decoys": experiment.decoys,
        "generate": experiment.generate,
        "paper": list(experiment.paper),
        "groups": groups,
    }


def _cell(
    place: Place, places: Sequence[Place], loaded: Loaded, gathered: Gathered
) -> dict[str, Any]:
    entrant, length = place.entrant, place.length
    values = _values(gathered[length, entrant])
    metrics = {name: _estimated(estimate(each)) for name, each in values.items()}
    differences = {}
    base = _baseline(place, places)
    if base is not None and base is not place:
        against = _values(gathered[length, base.entrant])
        for name, each in values.items():
            difference, verdict = compare(
                each, against[name], lower_is_better=LOWER_IS_BETTER[name]
            )
            differences[name] = {**_estimated(difference), "verdict": verdict}
    outcomes = gathered[length, entrant]
    return {
        "length": length,
        "budget": place.budget,
        "budget_rows": length if place.budget == "all" else rows_of(place.budget, length),
        "contender": entrant.contender.name,
        "title": entrant.contender.title,
        "rows": entrant.rows or length,
        "bytes": loaded.stable.bytes(entrant, length),
        "metrics": metrics,
        "difference": differences,
        "by_sample": {name: [_rounded(x) for x in each] for name, each in values.items()},
        "questions": _questions(outcomes),
        "kept": _kept(outcomes),
    }


def _baseline(place: Place, places: Sequence[Place]) -> Place | None:
    """The cell that this one is compared with: the baseline's of length and budget.

    The full cache, which has no budget, is compared where there is but one.
    """
    name = place.group.baseline
    only = place.entrant == FULL and len(place.group.budgets) == 1
    for each in places:
        same = each.length == place.length and each.entrant.contender.name == name
        if same and (only or each.budget == place.budget or each.entrant == FULL):
            return each
    return None


def _values(outcomes: Sequence[Any]) -> dict[str, list[float]]:
    """Each metric's values, one a sample or run."""
    if "tokens_per_second" in outcomes[0]:
        return {
            name: [float(x) for each in outcomes for x in each[name]]
            for name in ("tokens_per_second", "peak_bytes")
        }
    values = {name: [o[name] for o in outcomes] for name in ("nll", "kl", "agreement")}
    if outcomes[0]["recalled"]:
        values["recall"] = [sum(o["recalled"]) / len(o["recalled"]) for o in outcomes]
    return values


def _questions(outcomes: Sequence[Any]) -> list[dict[str, Any]]:
    """How many were asked and answered, by depth of the fact and turn of the question."""
    counts: dict[tuple[float, int], list[int]] = {}
    for outcome in outcomes:
        for turn, right in enumerate(outcome.get("recalled", [])):
            count = counts.setdefault((outcome["depths"][turn], turn), [0, 0])
            count[0] += 1
            count[1] += right
    return [
        {"depth": depth, "turn": turn, "asked": asked, "right": right}
        for (depth, turn), (asked, right) in sorted(counts.items())
    ]


def _kept(outcomes: Sequence[Any]) -> list[list[float]]:
    """By layer, the mean share of each part of the text that is still there."""
    kept = [outcome["kept"] for outcome in outcomes if outcome.get("kept")]
    if not kept:
        return []
    return [
        [_rounded(sum(parts) / len(parts)) for parts in zip(*layer, strict=True)]
        for layer in zip(*kept, strict=True)
    ]


def _estimated(found: Estimate) -> dict[str, Any]:
    return {
        "mean": _rounded(found.mean),
        "low": _rounded(found.low),
        "high": _rounded(found.high),
        "samples": found.samples,
    }


def _rounded(value: float) -> float:
    """Six significant digits: what a rerun on the same machine gives again."""
    if value == 0 or not math.isfinite(value):
        return 0.0
    return float(f"{value:.{_DIGITS}g}")
