"""A run's results: what `h2o-pack eval --json` prints and results.json holds.

Pages, pictures and comparisons are made from these alone, so that committed results can be
shown and checked again without a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from h2o_pack.measure.evaluation.preset import Ask, Equal, Task
from h2o_pack.measure.evaluation.statistics import Difference, Estimate
from h2o_pack.measure.machine import Machine
from h2o_pack.results import Result, doc


@dataclass(frozen=True)
class QuestionCount:
    """Questions about facts of one depth, asked in one turn."""

    depth: float
    turn: int
    asked: int
    right: Annotated[int, doc("Answered right.")]


@dataclass(frozen=True)
class Cell:
    """A contender at one length and budget."""

    length: Annotated[int, doc("Tokens per sample.")]
    budget: Annotated[str, doc("Rows, a share of the length, or all.")]
    budget_rows: Annotated[int, doc("Rows of that budget, at 16 bits.")]
    contender: Annotated[str, doc("policy[/storage][+pinned]")]
    title: str
    rows: Annotated[int, doc("That each KV head keeps.")]
    bytes: Annotated[int, doc("Of all layers for one sequence.")]
    metrics: Annotated[
        dict[str, Estimate],
        doc(
            "nll and kl in nats per token, agreement, recall and what a way of asking gives "
            "as shares, speed, peak bytes."
        ),
    ]
    difference: Annotated[
        dict[str, Difference],
        doc("To the baseline, sample by sample; empty for the baseline itself."),
    ]
    by_sample: Annotated[dict[str, tuple[float, ...]], doc("The metrics' values.")]
    questions: tuple[QuestionCount, ...]
    kept: Annotated[
        tuple[tuple[float, ...], ...],
        doc("By layer, the share of each part of the text that is still there, if known."),
    ]
    archive_bytes: Annotated[
        int, doc("Of the archive that recall reads, in memory or in files; 0 without one.")
    ] = 0


@dataclass(frozen=True)
class GroupResult:
    """A table."""

    id: str
    title: str
    equal: Annotated[Equal, doc("What all contenders of a budget have alike.")]
    baseline: Annotated[str, doc("The contender that differences are to.")]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class ExperimentResult:
    """An experiment of the preset."""

    id: str
    title: str
    task: Task
    ask: Ask
    samples: Annotated[int, doc("Per seed; runs where speed is measured.")]
    decoys: Annotated[int, doc("Other facts of the same form.")]
    generate: Annotated[int, doc("Tokens, where speed is measured.")]
    paper: Annotated[tuple[int, ...], doc("Tables of the paper that this repeats.")]
    groups: tuple[GroupResult, ...]
    seeds: Annotated[tuple[int, ...], doc("Of its samples; none for the report's.")] = ()


@dataclass(frozen=True)
class ModelIdentity:
    """A model."""

    name: str
    parameters_sha256: Annotated[
        str, doc("Of the name, type, shape and bytes of each parameter, by name.")
    ]


@dataclass(frozen=True, kw_only=True)
class Report(Result):
    """A preset's results on one model."""

    preset: str
    title: str
    model: ModelIdentity
    text: str
    seeds: tuple[int, ...]
    prefill: Annotated[int, doc("Tokens read at once; each one after that by itself.")]
    confidence: Annotated[float, doc("Of all intervals.")]
    machine: Machine
    experiments: tuple[ExperimentResult, ...]


@dataclass(frozen=True, kw_only=True)
class Evaluation(Result):
    """The results of one run, one report per model."""

    reports: tuple[Report, ...]
