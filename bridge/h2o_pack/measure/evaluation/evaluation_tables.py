"""Shows a report as tables, and as a Markdown page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from h2o_pack.files.toml import load
from h2o_pack.measure.evaluation import reading
from h2o_pack.measure.evaluation.evaluation_report import Cell, EvaluationReport, GroupResult
from h2o_pack.measure.evaluation.statistics import LEAST_SAMPLES
from h2o_pack.measure.tables import Table, markdown_table, page_head, print_table
from h2o_pack.printing import caption


@dataclass(frozen=True)
class Metric:
    """A column for a metric in tables.

    source: the metric's name in `Cell.metrics`. digits: after the decimal point. convert: makes
    the figure in the table from the metric's value. judged: whether it has a verdict.
    """

    header: str
    source: str
    digits: int
    convert: Callable[[float], float] = float
    judged: bool = True

    def figure(self, cell: Cell, *, interval: bool = True) -> str:
        """Return a cell's mean and its interval; "" if the metric was not measured."""
        estimate = cell.metrics.get(self.source)
        if estimate is None:
            return ""
        values = (self.convert(value) for value in (estimate.mean, estimate.low, estimate.high))
        mean, low, high = (f"{value:,.{self.digits}f}" for value in values)
        return f"{mean} [{low}, {high}]" if interval else mean

    def verdict(self, group: GroupResult, cell: Cell) -> str:
        """Return the verdict on the difference to the baseline."""
        if self.source in cell.difference:
            return cell.difference[self.source].verdict
        return "baseline" if cell.contender == group.baseline else ""


METRICS = (
    Metric("perplexity", "nll", 3, math.exp),
    # No verdict: KL already compares with the full cache, and a verdict with the baseline.
    Metric("KL, nats", "kl", 4, judged=False),
    Metric("top-1", "agreement", 3),
    Metric("asked", "asked", 2),
    Metric("second turn", "second_turn", 2),
    Metric("named together", "named", 2),
    Metric("in an answer", "middle", 2),
    Metric("other wording", "wording", 2),
    Metric("instruction", "instruction", 2),
    Metric("earlier answer", "earlier", 2),
    Metric("tool's output", "tool", 2),
    Metric("text, nll", "text_nll", 3),
    Metric("text, KL", "text_kl", 4, judged=False),
)
AGAINST = "against the baseline"
CERTAIN = ("better", "worse")


def print_report(report: EvaluationReport, console: Console) -> None:
    """Show every table of a report at a terminal, with means but without intervals."""
    for experiment in report.experiments:
        for group in experiment.groups:
            header, rows = group_rows(group, compact=True)
            title = f"{experiment.title}: {group.title.lower()}"
            print_table(Table(title, header, tuple(rows), text=(AGAINST,)), console)
    caption(origin(report), console, "")


def render(report: EvaluationReport) -> str:
    """Return the Markdown page of a report."""
    head = page_head("h2o-pack eval --output", report.title)
    how, _ = load(Path(__file__).with_name("page.toml"))
    tasks = dict.fromkeys(experiment.task for experiment in report.experiments)
    reads = [how[task].format(prefill=report.prefill, piece=reading.PIECE) for task in tasks]
    lines = [head, origin(report), "", *reads]
    percent = 100 * report.confidence
    lines.append(how["method"].format(percent=percent, least=LEAST_SAMPLES))
    for experiment in report.experiments:
        lines += [f"## {experiment.title}", ""]
        for group in experiment.groups:
            lines += _group(group)
    return "\n".join(lines).rstrip() + "\n"


def origin(report: EvaluationReport) -> str:
    """Return two sentences that name the model, the text, the seeds and the machine."""
    model = report.model
    return (
        f"Model {model.name}, sha256 of its parameters `{model.parameters_sha256}`; "
        f"text: {report.text}; seeds {', '.join(map(str, report.seeds))}. {report.machine}."
    )


Column = tuple[str, Callable[[Cell], str]]
"""A column's name, and the function that makes its text for a cell of the report."""


def group_rows(
    group: GroupResult, *, compact: bool = False
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows of a group's table.

    compact: for a terminal: means without intervals, no bytes, and all verdicts in one column.
    """
    measured = [m for m in METRICS if any(m.source in cell.metrics for cell in group.cells)]
    columns: list[Column] = [("cache", lambda cell: cell.title)]
    if _of_several_lengths(group):
        columns.append(("tokens", lambda cell: f"{cell.length:,}"))
    columns.append(("rows", lambda cell: f"{cell.rows:,}"))
    if not compact:
        columns.append(("KB", lambda cell: f"{cell.bytes / 1024:,.0f}"))
        if any(cell.archive_bytes for cell in group.cells):
            columns.append(("archive KB", lambda cell: f"{cell.archive_bytes / 1024:,.0f}"))
    for metric in measured:
        columns.append((metric.header, partial(metric.figure, interval=not compact)))
        if metric.judged and not compact:
            columns.append(("verdict", partial(metric.verdict, group)))
    if compact:
        columns.append((AGAINST, partial(_all_verdicts, group, measured)))
    header = tuple(name for name, _ in columns)
    return header, [tuple(text(cell) for _, text in columns) for cell in group.cells]


def _all_verdicts(group: GroupResult, measured: Sequence[Metric], cell: Cell) -> str:
    if not cell.difference:
        return "baseline" if cell.contender == group.baseline else ""
    verdicts = [(m.header, m.verdict(group, cell)) for m in measured if m.judged]
    certain = [f"{name} {verdict}" for name, verdict in verdicts if verdict in CERTAIN]
    return ", ".join(certain) or "not distinguishable"


def _of_several_lengths(group: GroupResult) -> bool:
    return len({cell.length for cell in group.cells}) > 1


def _group(group: GroupResult) -> list[str]:
    header, rows = group_rows(group)
    baseline = next((c.title for c in group.cells if c.contender == group.baseline), "none")
    count = next(iter(group.cells[0].metrics.values())).samples
    lines = [f"### {group.title}", "", f"{count} samples; baseline: {baseline}.", ""]
    return [*lines, *markdown_table(header, rows), ""]
