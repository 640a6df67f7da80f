"""The report of a run, and the losses taken from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from h2o_pack.choice.losses import Loss, LossTable, MeasuredLoss
from h2o_pack.files.text import read_json
from h2o_pack.measure.evaluation.contenders import (
    DEFAULT,
    UNBOUNDED,
    CacheFactory,
    Contender,
    find_contender,
)
from h2o_pack.measure.evaluation.preset import Equal, Group, Task, rows_of
from h2o_pack.measure.evaluation.statistics import (
    Difference,
    Estimate,
    compare,
    estimate,
    rounded,
)
from h2o_pack.measure.evaluation.tasks import QUESTIONS, Outcome
from h2o_pack.measure.machine import Machine
from h2o_pack.results import Result, doc
from h2o_py.config import H2ORecall

LOWER_IS_BETTER = ("nll", "kl")
"""Endings of the names of metrics for which a lower value is better."""


@dataclass(frozen=True)
class Cell:
    """The figures of a contender at one length and budget."""

    length: Annotated[int, doc("Tokens per sample.")]
    budget: Annotated[str, doc('A number of rows, a share of the length, or "all".')]
    budget_rows: Annotated[int, doc("The budget as a number of 16-bit rows.")]
    contender: Annotated[str, doc("policy[/storage][+budgets][+recall]")]
    title: str
    rows: Annotated[int, doc("Rows that each KV head keeps.")]
    bytes: Annotated[int, doc("Bytes of the caches of all layers for one sequence.")]
    metrics: Annotated[
        dict[str, Estimate],
        doc(
            "Metrics by name: nll and kl in nats per token; agreement and the ways of asking "
            "as shares."
        ),
    ]
    difference: Annotated[
        dict[str, Difference],
        doc("Differences to the baseline on the same samples; empty for the baseline."),
    ]
    by_sample: Annotated[dict[str, tuple[float, ...]], doc("Each metric's value per sample.")]
    archive_bytes: Annotated[
        int, doc("Bytes of recall's archive, in memory or in files; 0 without recall.")
    ] = 0

    @property
    def answers(self) -> list[float]:
        """The share of right answers of each sample, over all ways of asking."""
        asked = [self.by_sample[way] for way in QUESTIONS if way in self.by_sample]
        return [sum(answers) / len(answers) for answers in zip(*asked, strict=True)]


@dataclass(frozen=True)
class GroupResult:
    """The table of a group of contenders."""

    id: str
    title: str
    equal: Annotated[Equal, doc("Whether a budget is an equal number of rows or of bytes.")]
    baseline: Annotated[str, doc("The contender that the others are compared with.")]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class ExperimentResult:
    """The results of an experiment of the preset."""

    id: str
    title: str
    task: Task
    samples: Annotated[int, doc("Samples per seed.")]
    decoys: Annotated[int, doc("Other facts of the same form in each conversation.")]
    groups: tuple[GroupResult, ...]


@dataclass(frozen=True)
class ModelIdentity:
    """The name of a model and a digest of its parameters."""

    name: str
    parameters_sha256: Annotated[
        str,
        doc("Digest of the name, type, shape and bytes of all parameters, sorted by name."),
    ]


@dataclass(frozen=True, kw_only=True)
class EvaluationReport(Result):
    """A preset's results on one model."""

    preset: str
    title: str
    model: ModelIdentity
    text: str
    seeds: tuple[int, ...]
    prefill: Annotated[
        int, doc("Tokens read at once at the beginning of a text that is read token by token.")
    ]
    confidence: Annotated[float, doc("Confidence level of all intervals.")]
    machine: Machine
    experiments: tuple[ExperimentResult, ...]


@dataclass(frozen=True, kw_only=True)
class Evaluation(Result):
    """The results of one run, one report per model."""

    reports: tuple[EvaluationReport, ...]


@dataclass(frozen=True)
class CellKey:
    """The contender, the length and the budget of a cell in a group's table."""

    length: int
    budget: str
    contender: Contender


Outcomes = Mapping[tuple[int, Contender], Sequence[Outcome]]
"""Outcomes by length and contender, in the order of the samples."""


def group_result(
    group: Group, keys: Sequence[CellKey], outcomes: Outcomes, factory: CacheFactory
) -> GroupResult:
    """Make a group's table from the outcomes of its contenders."""
    values = {key: metric_values(outcomes[key.length, key.contender]) for key in keys}
    cells = []
    for key in keys:
        contender, length = key.contender, key.length
        baseline = baseline_of(key, group, keys)
        differences = {}
        if baseline is not None and baseline is not key:
            differences = {
                name: compare(
                    values[key][name], base, lower_is_better=name.endswith(LOWER_IS_BETTER)
                )
                for name, base in values[baseline].items()
            }
        cells.append(
            Cell(
                length=length,
                budget=key.budget,
                budget_rows=length if key.budget == "all" else rows_of(key.budget, length),
                contender=contender.name,
                title=contender.title,
                rows=contender.rows or length,
                bytes=factory.bytes(contender, length),
                archive_bytes=factory.archive_bytes(contender, length),
                metrics={name: estimate(v) for name, v in values[key].items()},
                difference=differences,
                by_sample={name: tuple(map(rounded, v)) for name, v in values[key].items()},
            )
        )
    return GroupResult(group.id, group.title, group.equal, group.baseline, tuple(cells))


def metric_values(outcomes: Sequence[Outcome]) -> dict[str, list[float]]:
    """Return each metric's values, one per sample."""
    return {
        name: [outcome.metrics[name] for outcome in outcomes] for name in outcomes[0].metrics
    }


def baseline_of(key: CellKey, group: Group, keys: Sequence[CellKey]) -> CellKey | None:
    """Return the baseline's cell that a cell is compared with; None if there is none.

    It has the same length and budget. A cache that keeps all rows has no budget: as the
    baseline it is compared with all budgets, and otherwise with the baseline at the group's
    budget, if the group has only one.
    """
    only = not key.contender.bounded and len(group.budgets) == 1
    for other in keys:
        if (other.length, other.contender.name) != (key.length, group.baseline):
            continue
        if only or other.budget == key.budget or other.contender.name == UNBOUNDED:
            return other
    return None


def read(path: Path) -> EvaluationReport:
    """Read a report. Raises UserError: the file cannot be read or is not a report."""
    return read_json(
        path, EvaluationReport, "a report", "Give the results.json of `h2o-pack eval`."
    )


TEXT_KL = "text_kl"


def losses(report: EvaluationReport) -> LossTable | None:
    """Return the losses of full caches and of the default policy's caches.

    Only conversations count. Samples of different lengths cannot be compared, so the
    losses are from the length at which most storages of a full cache in few bits were measured,
    and from the longest of several. Returns None if there is none.
    """
    conversations = [
        (experiment, cell)
        for experiment in report.experiments
        for group in experiment.groups
        for cell in group.cells
        if cell.answers and TEXT_KL in cell.metrics
    ]
    storages: dict[int, set[str]] = {}
    for _, cell in conversations:
        storage = find_contender(cell.contender).storage
        if cell.rows >= cell.length and storage != "16":
            storages.setdefault(cell.length, set()).add(storage)
    tokens = max(storages, key=lambda length: (len(storages[length]), length), default=0)
    measured = [pair for pair in conversations if pair[1].length == tokens]
    caches: dict[tuple[str, int, bool], MeasuredLoss] = {}
    samples = 0
    for experiment, cell in measured:
        contender = find_contender(cell.contender)
        recalls = contender.recall is not None
        is_measured = contender.policy == DEFAULT or contender.storage != "16"
        has_defaults = contender.recall in (None, H2ORecall()) and not contender.by_layer
        if is_measured and has_defaults:
            full = next(c for e, c in measured if e is experiment and c.contender == UNBOUNDED)
            caches[contender.storage, cell.rows, recalls] = measured_loss(cell, full)
            samples = experiment.samples * len(report.seeds)
    if not caches:
        return None
    return LossTable(
        model=report.model.name,
        parameters_sha256=report.model.parameters_sha256,
        text=report.text,
        samples=samples,
        tokens=tokens,
        caches=tuple(caches[key] for key in sorted(caches)),
    )


def measured_loss(cell: Cell, full: Cell) -> MeasuredLoss:
    """Return one cache's loss against the full cache on the same samples."""
    answered = compare(cell.answers, full.answers, lower_is_better=False)
    contender = find_contender(cell.contender)
    return MeasuredLoss(
        kv=contender.storage,
        share=rounded(min(1.0, cell.rows / cell.length)),
        recall=contender.recall is not None,
        loss=Loss(
            kl=cell.metrics[TEXT_KL].mean,
            loses_answers=answered.verdict == "worse",
        ),
    )
