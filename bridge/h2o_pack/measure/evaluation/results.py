"""A run's results: what `h2o-pack eval --json` prints and results.json holds.

Pages, pictures and comparisons are made from these alone, so that committed results can be
shown and checked again without a run.
"""

from __future__ import annotations

from dataclasses import dataclass

from h2o_pack.measure.evaluation.preset import Ask, Equal, Task
from h2o_pack.measure.evaluation.statistics import Difference, Estimate
from h2o_pack.measure.machine import Machine
from h2o_pack.results import Result


@dataclass(frozen=True)
class QuestionCount:
    """How many questions were asked and answered right, for facts of one depth and turn."""

    depth: float
    turn: int
    asked: int
    right: int


@dataclass(frozen=True)
class Cell:
    """A contender at one length and budget.

    budget: as the preset has it, or "all". budget_rows: the rows of that budget. rows: what the
    contender has; more or fewer where all have as many bytes. bytes: of all layers for one
    sequence. metrics: nll and kl in nats per token, agreement and recall as shares,
    tokens_per_second, peak_bytes. difference: to the baseline. by_sample: the metrics' values.
    kept: by layer, the share of each part of the text whose rows are still there.
    """

    length: int
    budget: str
    budget_rows: int
    contender: str
    title: str
    rows: int
    bytes: int
    metrics: dict[str, Estimate]
    difference: dict[str, Difference]
    by_sample: dict[str, tuple[float, ...]]
    questions: tuple[QuestionCount, ...]
    kept: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class GroupResult:
    """A table; `baseline` is the contender that the others are compared with."""

    id: str
    title: str
    equal: Equal
    baseline: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class ExperimentResult:
    """An experiment of the preset, and its tables."""

    id: str
    title: str
    task: Task
    ask: Ask
    samples: int
    decoys: int
    generate: int
    paper: tuple[int, ...]
    groups: tuple[GroupResult, ...]


@dataclass(frozen=True)
class ModelIdentity:
    """A model; parameters_sha256 is of the names, types, shapes and bytes of its parameters."""

    name: str
    parameters_sha256: str


@dataclass(frozen=True, kw_only=True)
class Report(Result):
    """A preset's results on one model.

    prefill: tokens read at once before the others come one by one. confidence: of the
    intervals.
    """

    preset: str
    title: str
    model: ModelIdentity
    text: str
    seeds: tuple[int, ...]
    prefill: int
    confidence: float
    machine: Machine
    experiments: tuple[ExperimentResult, ...]


@dataclass(frozen=True, kw_only=True)
class Evaluation(Result):
    """The results of one run, one report per model."""

    reports: tuple[Report, ...]
