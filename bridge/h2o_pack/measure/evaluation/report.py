"""The results of a run: statistics, report, losses, and whether a rerun agrees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, Literal

import numpy as np

from h2o_pack.choice.losses import Loss, LossTable, MeasuredLoss, MeasuredRecall
from h2o_pack.files.text import read_json
from h2o_pack.measure.evaluation import tasks
from h2o_pack.measure.evaluation.contenders import UNBOUNDED, Contender, find_contender
from h2o_pack.measure.evaluation.loaded import LoadedModel
from h2o_pack.measure.evaluation.lockstep import PREFILL
from h2o_pack.measure.evaluation.preset import Ask, Equal, Experiment, Preset, Task, rows_of
from h2o_pack.measure.evaluation.run import FULL, CellKey, Unit
from h2o_pack.measure.machine import Machine, describe
from h2o_pack.results import Result, doc
from h2o_py.recall import H2ORecall

Verdict = Literal["better", "worse", "not distinguishable"]

CONFIDENCE = 0.95
DRAWS = 4000
LEAST_SAMPLES = 6
"""With fewer, all differences have one sign by chance in more than 5 of 100 runs (2^(1 - n)),
and no interval made of them can be trusted to leave 0 out."""
DIGITS = 6
_SEED = 20260301
_CHUNK = 1000


@dataclass(frozen=True)
class Estimate:
    """A mean and its confidence interval."""

    mean: float
    low: float
    high: float
    samples: Annotated[int, doc("That it is of.")]

    def rounded(self) -> Estimate:
        """Return the same with `DIGITS` significant digits."""
        mean, low, high = map(rounded, (self.mean, self.low, self.high))
        return Estimate(mean, low, high, self.samples)

    def overlaps(self, other: Estimate) -> bool:
        """Return whether the two intervals have a value in common."""
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True)
class Difference(Estimate):
    """A mean difference to a baseline, and what it says."""

    verdict: Verdict

    def rounded(self) -> Difference:
        """Return the same with `DIGITS` significant digits."""
        return Difference(**vars(super().rounded()), verdict=self.verdict)


def rounded(value: float) -> float:
    """Round to `DIGITS` significant digits: what a rerun on the same machine gives again."""
    if value == 0 or not math.isfinite(value):
        return 0.0
    return float(f"{value:.{DIGITS}g}")


def estimate(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Estimate the mean of independent samples, with its bootstrap interval.

    The same values give the same interval, whatever else was estimated before.

    Raises:
        ValueError: there are no values, or one is not finite.

    """
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0 or not np.isfinite(data).all():
        raise ValueError(
            f"{data.size} values, {int(np.isfinite(data).sum())} of them finite, have no "
            "mean. Look for a sample without scored tokens."
        )
    mean = float(data.mean())
    if data.size == 1 or np.ptp(data) == 0:
        return Estimate(mean, mean, mean, int(data.size))
    rng = np.random.default_rng(_SEED)
    means = np.concatenate(
        [
            data[rng.integers(0, data.size, (min(_CHUNK, DRAWS - i), data.size))].mean(axis=1)
            for i in range(0, DRAWS, _CHUNK)
        ]
    )
    tail = expanded_tail(data.size, confidence)
    low, high = np.quantile(means, [tail, 1 - tail])
    return Estimate(mean, float(low), float(high), int(data.size))


def compare(
    values: Sequence[float], baseline: Sequence[float], *, lower_is_better: bool
) -> Difference:
    """Estimate the difference to a baseline on the same samples.

    Not distinguishable when the interval of the mean difference has 0 in it, or when there
    are fewer than `LEAST_SAMPLES` samples.

    Raises:
        ValueError: the two are of different samples.

    """
    if len(values) != len(baseline):
        raise ValueError(
            f"{len(values)} samples cannot be paired with {len(baseline)}. Both must read "
            "the same."
        )
    pairs = zip(values, baseline, strict=True)
    found = estimate([value - base for value, base in pairs])
    verdict: Verdict = "better" if (found.mean < 0) == lower_is_better else "worse"
    if found.low <= 0 <= found.high or found.samples < LEAST_SAMPLES:
        verdict = "not distinguishable"
    return Difference(**vars(found), verdict=verdict)


def expanded_tail(samples: int, confidence: float = CONFIDENCE) -> float:
    """Return the share of bootstrap means that lies outside on each side.

    Phi(t * sqrt(n / (n - 1))), t the quantile of Student's t with n - 1 degrees: n / (n - 1)
    because bootstrap means spread by n rather than n - 1.
    """
    freedom = samples - 1
    t = student_quantile((1 - confidence) / 2, freedom)
    return NormalDist().cdf(t * math.sqrt(samples / freedom))


def student_quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t, found by bisection.

    Raises:
        ValueError: the probability is not between 0 and 1, or there is no freedom.

    """
    if not 0 < probability < 1 or freedom < 1:
        raise ValueError(f"no t quantile at {probability} with {freedom} degrees of freedom.")
    if probability > 0.5:  # noqa: PLR2004  symmetric
        return -student_quantile(1 - probability, freedom)
    low, high = -1e6, 0.0
    for _ in range(200):
        middle = (low + high) / 2
        if _student_tail(-middle, freedom) > probability:
            high = middle
        else:
            low = middle
    return (low + high) / 2


def _student_tail(t: float, freedom: int) -> float:
    """P(T > t) for t >= 0, exact for whole degrees (Abramowitz and Stegun 26.7.3-4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine = math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine * (k - 1) / k
        total += term
    inside = math.sin(angle) * total
    if odd:
        inside = 2 / math.pi * (angle + inside)
    return (1 - inside) / 2


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


LOWER_IS_BETTER = {
    "nll": True,
    "kl": True,
    "agreement": False,
    "recall": False,
    **{name: name.endswith(("_nll", "_kl")) for name in tasks.METRICS},
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


_NOT_REPRODUCIBLE = ("tokens_per_second", "peak_bytes")
"""They belong to the machine."""


def read(path: Path) -> Report:
    """Read a report.

    Raises:
        UserError: the file cannot be read or is not a report.

    """
    return read_json(path, Report, "a report", "Give the results.json of `h2o-pack eval`.")


def differences(earlier: Report, now: Report) -> list[str]:
    """Return what does not reproduce, one sentence each.

    A figure reproduces when the intervals of the two runs overlap. Speed and memory
    belong to the machine and are not compared.
    """
    found = [
        f"{name}: {_listed(before)} before, {_listed(after)} now"
        for name in ("preset", "seeds", "text")
        if (before := getattr(earlier, name)) != (after := getattr(now, name))
    ]
    if earlier.model.parameters_sha256 != now.model.parameters_sha256:
        found.append("the model's parameters differ")
    before, after = _cells(earlier), _cells(now)
    for place, cell in before.items():
        where = ", ".join(str(part) for part in place)
        if place not in after:
            found.append(f"{where}: not in this run")
            continue
        for name, metric in cell.metrics.items():
            other = after[place].metrics.get(name)
            if name in _NOT_REPRODUCIBLE or (other is not None and metric.overlaps(other)):
                continue
            shown = "missing" if other is None else _shown(other)
            found.append(f"{where}: {name} was {_shown(metric)}, is {shown}")
    found += [
        f"{', '.join(str(part) for part in place)}: not in the earlier run"
        for place in after.keys() - before.keys()
    ]
    return found


def _cells(report: Report) -> dict[tuple[Any, ...], Cell]:
    return {
        (each.id, group.id, cell.length, cell.budget, cell.contender): cell
        for each in report.experiments
        for group in each.groups
        for cell in group.cells
    }


def _listed(value: str | tuple[int, ...]) -> str:
    return value if isinstance(value, str) else ", ".join(map(str, value))


def _shown(metric: Estimate) -> str:
    return f"{metric.mean:.4g} [{metric.low:.4g}, {metric.high:.4g}]"


POLICY = "default"
ASKED = "asked"


def losses(report: Report) -> LossTable | None:
    """Return what the default policy's caches lost, by storage and rows; None without any.

    Of tables with facts in the text, those with the most tokens count.
    """
    read = [
        (experiment, group.cells)
        for experiment in report.experiments
        if experiment.task == "read" and experiment.ask == "one"
        for group in experiment.groups
    ]
    tokens = max((cell.length for _, cells in read for cell in cells), default=0)
    caches: dict[tuple[str, int], MeasuredLoss] = {}
    samples = 0
    for experiment, cells in read:
        at_length = [cell for cell in cells if cell.length == tokens]
        full = next(cell for cell in at_length if cell.contender == UNBOUNDED)
        for cell in at_length:
            who = find_contender(cell.contender)
            if who.policy != POLICY or who.pinned or who.recall is not None:
                continue
            caches[who.storage, cell.rows] = measured(cell, full)
            samples = experiment.samples * len(experiment.seeds or report.seeds)
    if not caches:
        return None
    return LossTable(
        model=report.model.name,
        parameters_sha256=report.model.parameters_sha256,
        text=report.text,
        samples=samples,
        tokens=tokens,
        caches=tuple(caches[key] for key in sorted(caches)),
        recall=tuple(sorted(with_recall(report), key=lambda each: each.share)),
    )


def measured(cell: Cell, full: Cell) -> MeasuredLoss:
    """Return one cache's loss against the full cache on the same samples."""
    facts = compare(cell.by_sample["recall"], full.by_sample["recall"], lower_is_better=False)
    return MeasuredLoss(
        kv=find_contender(cell.contender).storage,
        share=rounded(min(1.0, cell.rows / cell.length)),
        byte_share=rounded(cell.bytes / full.bytes),
        loss=Loss(
            kl=cell.metrics["kl"].mean,
            facts=cell.metrics["recall"].mean,
            loses_facts=facts.verdict == "worse",
        ),
    )


def with_recall(report: Report) -> list[MeasuredRecall]:
    """Return the caches that were measured with recall and without."""
    found = []
    for experiment in report.experiments:
        for group in experiment.groups if experiment.task == "prompts" else ():
            plain = {
                (cell.length, cell.budget): cell
                for cell in group.cells
                if cell.contender == POLICY
            }
            for cell in group.cells:
                who = find_contender(cell.contender)
                base = plain.get((cell.length, cell.budget))
                if base is None or who.recall != H2ORecall() or ASKED not in cell.difference:
                    continue
                found.append(
                    MeasuredRecall(
                        share=rounded(cell.rows / cell.length),
                        facts=base.metrics[ASKED].mean,
                        recalled=cell.metrics[ASKED].mean,
                        better=cell.difference[ASKED].verdict == "better",
                    )
                )
    return found
