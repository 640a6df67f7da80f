"""A report as tables, pictures and a page."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from h2o_pack.measure.evaluation import tasks
from h2o_pack.measure.evaluation.report import (
    LEAST_SAMPLES,
    Cell,
    ExperimentResult,
    GroupResult,
    Report,
)
from h2o_pack.measure.pictures import new_figure
from h2o_pack.measure.tables import Table, markdown_table, print_table


@dataclass(frozen=True)
class Metric:
    """A metric in tables.

    Args:
        header: of its column.
        source: its name in results.
        digits: of its figures.
        shown: what becomes of a value.
        judged: whether its verdict has a column.

    """

    header: str
    source: str
    digits: int
    shown: Callable[[float], float] = float
    judged: bool = True

    def figure(self, cell: Cell, *, interval: bool = True) -> str:
        """Write a cell's mean and its interval; nothing where it was not measured."""
        found = cell.metrics.get(self.source)
        if found is None:
            return ""
        values = (self.shown(value) for value in (found.mean, found.low, found.high))
        mean, low, high = (f"{value:,.{self.digits}f}" for value in values)
        return f"{mean} [{low}, {high}]" if interval and self is not PEAK else mean

    def verdict(self, group: GroupResult, cell: Cell) -> str:
        """Return what the difference to the baseline says."""
        if self.source in cell.difference:
            return cell.difference[self.source].verdict
        return "baseline" if cell.contender == group.baseline else ""


KL = Metric("KL, nats", "kl", 4, judged=False)
"""The baseline's own distance to the full cache is no goal."""
PEAK = Metric("peak MB", "peak_bytes", 1, lambda size: size / 1e6)
METRICS = (
    Metric("perplexity", "nll", 3, math.exp),
    KL,
    Metric("top-1", "agreement", 3),
    Metric("recall", "recall", 2),
    Metric("tokens/s", "tokens_per_second", 1),
    PEAK,
    Metric("asked", "asked", 2),
    Metric("second turn", "second_turn", 2),
    Metric("named together", "named", 2),
    Metric("in an answer", "middle", 2),
    Metric("a page later", "late", 2),
    Metric("other wording", "wording", 2),
    Metric("instruction", "instruction", 2),
    Metric("earlier answer", "earlier", 2),
    Metric("tool's output", "tool", 2),
    Metric("copying, nll", "copy_nll", 3),
    Metric("text, nll", "text_nll", 3),
    Metric("text, KL", "text_kl", 4, judged=False),
)
AGAINST = "against the baseline"
CERTAIN = ("better", "worse")
_METHOD = """\
The text is read token by token through the real cache, after a prefill of {prefill} tokens.
All contenders read the same samples and are compared with the full cache at each position: KL
is the divergence of a contender's prediction from the full cache's, and top-1 how often both
predict the same token. Figures are means over the samples, with {percent:.0f}% bootstrap
intervals in brackets. A verdict compares a contender with the baseline on each sample: better,
worse, or not distinguishable if the interval of the mean difference contains 0 or there are
fewer than {least} samples. Facts are lines such as "the code of LANTERN is 4821." in the text;
they do not count in perplexity, and one is recalled if a greedy answer contains its code. Bytes
are those of all layers for one sequence: keys, values, scores, positions and novelty. At equal
bytes, each storage has as many rows as fit into the bytes of the default policy's 16-bit rows.
Budgets and rows by layer are made from a profile of pieces of the same text; rows by layer are
the given number of rows on average.
"""
_PROMPTS = """\
Sections that say "read as prompts" read the text in pieces of {piece} tokens, and ask in these
ways, each on a copy of the caches. *Asked*: a prompt of {asked_in} tokens ends in "the code of
LANTERN is". *Second turn*: the same after another fact was asked for and answered. *Named
together*: a prompt names {named} facts, and the model is then made to say "the code of ... is"
for {of_them} of them in turn, with other text between. *In an answer*: the model is made to
say other text and then the question, whose last token comes at all remainders of 4 steps.
*A page later*: the prompt begins with the question and goes on with {page} tokens of other
text, and the model is then made to say "the code of LANTERN is".
*Other wording*: "number for LANTERN:". *Copying*: a passage's first {given} tokens are given,
and its next {forecast} predicted. *Text*: how the text goes on. The archive of recall is not
in the bytes of the rows; it has a column of its own, and may be in files.
"""


def print_report(report: Report, console: Console) -> None:
    """Show every table of a report at a terminal, means without their intervals."""
    for experiment in report.experiments:
        for group in experiment.groups:
            header, rows = compact_rows(group)
            title = f"{experiment.title}: {group.title.lower()}"
            print_table(Table(title, header, tuple(rows), text=(AGAINST,)), console)
    console.print(origin(report), markup=False)


def render(report: Report, pictures: list[Path] | None = None) -> str:
    """Return the page of a report; `pictures` are files beside it."""
    command = f"h2o-pack eval --preset {report.preset}"
    version = report.machine.h2o_pack
    head = [
        f"<!-- generated by h2o-pack {version} ({command}), do not edit -->",
        f"# {report.title}",
        "",
        origin(report),
        "",
        _METHOD.format(
            prefill=report.prefill,
            percent=100 * report.confidence,
            least=LEAST_SAMPLES,
        ),
    ]
    if any(each.task == "prompts" for each in report.experiments):
        head += [_PROMPTS.format(**tasks.LENGTHS, piece=tasks.PIECE)]
    for picture in pictures or []:
        head += [f"![{picture.stem.replace('_', ' ')}]({picture.name})", ""]
    for experiment in report.experiments:
        head += [f"## {experiment.title}", ""]
        for group in experiment.groups:
            head += _group(experiment, group)
    return "\n".join(head).rstrip() + "\n"


def origin(report: Report) -> str:
    """Name the model, text, seeds and machine."""
    model = report.model
    return (
        f"Model {model.name}, sha256 of its parameters `{model.parameters_sha256}`; "
        f"text: {report.text}; seeds {', '.join(map(str, report.seeds))}. {report.machine}."
    )


def group_rows(group: GroupResult) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows of a group's table."""
    measured, several = _measured(group)
    archived = any(cell.archive_bytes for cell in group.cells)
    header = ["cache", *(["tokens"] if several else []), "rows", "KB"]
    header += ["archive KB"] if archived else []
    for metric in measured:
        header += [metric.header, "verdict"] if metric.judged else [metric.header]
    rows = []
    for cell in group.cells:
        row = [cell.title, *([f"{cell.length:,}"] if several else [])]
        row += [f"{cell.rows:,}", f"{cell.bytes / 1024:,.0f}"]
        row += [f"{cell.archive_bytes / 1024:,.0f}"] if archived else []
        for metric in measured:
            figure = metric.figure(cell)
            row += [figure, metric.verdict(group, cell)] if metric.judged else [figure]
        rows.append(tuple(row))
    return tuple(header), rows


def compact_rows(group: GroupResult) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows for a terminal: means, and all verdicts in one column."""
    measured, several = _measured(group)
    first = ("cache", "tokens") if several else ("cache",)
    header = (*first, "rows", *(metric.header for metric in measured), AGAINST)
    rows = []
    for cell in group.cells:
        found = [(each, each.verdict(group, cell)) for each in measured if each.judged]
        said = [f"{each.header} {verdict}" for each, verdict in found if verdict in CERTAIN]
        verdict = ", ".join(said) or "not distinguishable"
        if not cell.difference:
            verdict = "baseline" if cell.contender == group.baseline else ""
        start = (cell.title, f"{cell.length:,}") if several else (cell.title,)
        figures = (metric.figure(cell, interval=False) for metric in measured)
        rows.append((*start, f"{cell.rows:,}", *figures, verdict))
    return header, rows


def _measured(group: GroupResult) -> tuple[list[Metric], bool]:
    """Return the metrics that a group has, and whether its samples differ in length."""
    found = [each for each in METRICS if any(each.source in c.metrics for c in group.cells)]
    return found, len({cell.length for cell in group.cells}) > 1


def _group(experiment: ExperimentResult, group: GroupResult) -> list[str]:
    header, rows = group_rows(group)
    baseline = next((c.title for c in group.cells if c.contender == group.baseline), "none")
    samples = group.cells[0].metrics
    count = next(iter(samples.values())).samples
    unit = "runs" if experiment.task == "speed" else "samples"
    seeds = f" of seeds {', '.join(map(str, experiment.seeds))}" if experiment.seeds else ""
    lines = [
        f"### {group.title}",
        "",
        f"{count} {unit}{seeds}; baseline: {baseline}.",
        "",
        *markdown_table(header, rows),
        "",
    ]
    return lines + _by_turn(experiment, group)


def _by_turn(experiment: ExperimentResult, group: GroupResult) -> list[str]:
    """Recall by turn, where questions follow one another."""
    if experiment.ask != "turns":
        return []
    turns = sorted({q.turn for cell in group.cells for q in cell.questions})
    header = ("recall in turn", *(str(turn + 1) for turn in turns))
    rows = []
    for cell in group.cells:
        shares = []
        for turn in turns:
            asked = [q for q in cell.questions if q.turn == turn]
            right = sum(q.right for q in asked) / sum(q.asked for q in asked)
            shares.append(f"{right:.2f}")
        rows.append((f"{cell.title}, {cell.rows} rows", *shares))
    return [*markdown_table(header, rows), ""]


PICTURES = ("budget_sweep", "length_sweep", "needle_map", "kept_positions")
_DPI = 110
_DARK = 0.5
_SHOWN_KEPT = 4
_ALL_NAMED = 8
_LEAST_SHARE = 0.01

Cells = Sequence[Cell]


def save(report: Report, folder: Path) -> list[Path]:
    """Draw what the report has figures for; returns the files.

    budget_sweep.png and length_sweep.png: perplexity and recall; needle_map.png: recall by
    depth and budget; kept_positions.png: which parts of the text each layer still has.
    """
    draws = (_budget_sweep, _length_sweep, _needle_map, _kept_positions)
    written = []
    for name, draw in zip(PICTURES, draws, strict=True):
        figure = draw(report)
        if figure is not None:
            path = folder / f"{name}.png"
            figure.savefig(path, dpi=_DPI, metadata={"Software": None})
            written.append(path)
    return written


Pair = tuple[ExperimentResult, GroupResult]


def _most(report: Report, count: Callable[[ExperimentResult, GroupResult], int]) -> Pair | None:
    """Return the experiment and group of which most can be shown, if there is one."""
    pairs = [(each, group) for each in report.experiments for group in each.groups]
    found = max(pairs, key=lambda pair: count(*pair))
    return found if count(*found) else None


def _has_nll(group: GroupResult) -> bool:
    return "nll" in group.cells[0].metrics


def _budget_sweep(report: Report) -> Any:
    """Draw the group with most budgets at one length."""

    def budgets(_experiment: ExperimentResult, group: GroupResult) -> int:
        rows = {cell.budget_rows for cell in group.cells if cell.budget != "all"}
        drawn = len({cell.length for cell in group.cells}) == 1 and _has_nll(group)
        return len(rows) if len(rows) > 1 and drawn else 0

    found = _most(report, budgets)
    return found and _sweep(*found, "budget_rows", "rows of each KV head (log)")


def _length_sweep(report: Report) -> Any:
    """Draw the group with most lengths at one budget."""

    def lengths(_experiment: ExperimentResult, group: GroupResult) -> int:
        found = {cell.length for cell in group.cells}
        return len(found) if len(found) > 1 and _has_nll(group) else 0

    found = _most(report, lengths)
    return found and _sweep(*found, "length", "tokens of the text (log)")


def _sweep(experiment: ExperimentResult, group: GroupResult, key: str, label: str) -> Any:
    cells: Cells = group.cells
    shown = ["nll"] + (["recall"] if "recall" in cells[0].metrics else [])
    figure = new_figure(5.6 * len(shown), 4.4)
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    bounded = [cell for cell in cells if cell.budget != "all"]
    names = list(dict.fromkeys(cell.contender for cell in bounded))
    for panel, metric in zip(panels, shown, strict=True):
        for i, name in enumerate(names):
            mine = sorted(
                (c for c in bounded if c.contender == name), key=lambda c: getattr(c, key)
            )
            budgets = {cell.budget for cell in mine}
            if key == "length" and len(budgets) > 1:
                mine = [cell for cell in mine if cell.budget == mine[0].budget]
            _line(panel, mine, key, metric, i)
        for cell in cells:
            if cell.budget == "all" and key == "budget_rows":
                mean = cell.metrics[metric].mean
                panel.axhline(mean, color="black", linestyle=":", label=cell.title)
        if key == "length":
            full = sorted(
                (c for c in cells if c.budget == "all"), key=lambda c: getattr(c, key)
            )
            means = [cell.metrics[metric].mean for cell in full]
            panel.plot([getattr(c, key) for c in full], means, "k:", label="full cache")
        panel.set_xscale("log", base=2)
        ticks = sorted({getattr(cell, key) for cell in bounded})
        panel.set_xticks(ticks, [str(tick) for tick in ticks])
        panel.set_xlabel(label)
        panel.set_ylabel("nats per token" if metric == "nll" else "recall")
    panels[0].legend(fontsize=8)
    figure.suptitle(f"{experiment.title}: {group.title.lower()}")
    return figure


def _line(panel: Any, cells: Cells, key: str, metric: str, number: int) -> None:
    figures = [cell.metrics[metric] for cell in cells]
    means = [each.mean for each in figures]
    spread = [
        [each.mean - each.low for each in figures],
        [each.high - each.mean for each in figures],
    ]
    places = [getattr(cell, key) * (1 + 0.008 * number) for cell in cells]  # bars side by side
    if metric == "nll":  # samples differ more than contenders do: no bars of that here
        panel.plot(places, means, "o-", label=cells[0].title)
    else:
        panel.errorbar(places, means, spread, fmt="o-", capsize=2, label=cells[0].title)


def _needle_map(report: Report) -> Any:
    """Draw recall by depth of the fact; one panel per contender of the widest group."""

    def size(experiment: ExperimentResult, group: GroupResult) -> int:
        cells = [cell for cell in group.cells if cell.questions]
        asked = {question.depth for cell in cells for question in cell.questions}
        columns = {(cell.length, cell.budget) for cell in cells}
        return len(columns) * len(asked) if experiment.ask == "one" else 0

    found = _most(report, size)
    if found is None:
        return None
    experiment, group = found
    cells = group.cells
    names = list(dict.fromkeys(cell.contender for cell in cells))
    figure = new_figure(2.9 * len(names) + 0.6, 3.4)
    panels = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    depths = sorted({q.depth for cell in cells for q in cell.questions})
    image: Any = None
    for panel, name in zip(panels, names, strict=True):
        mine = [cell for cell in cells if cell.contender == name]
        mine.sort(key=lambda cell: (cell.length, cell.budget_rows))
        grid = [[_recall(cell, depth) for cell in mine] for depth in depths]
        image = panel.imshow(grid, vmin=0, vmax=1, cmap="viridis", aspect="auto")
        for y, row in enumerate(grid):
            for x, value in enumerate(row):
                color = "black" if value > _DARK else "white"
                panel.text(x, y, f"{value:.2f}", ha="center", va="center", color=color)
        panel.set_title(mine[0].title, fontsize=9)
        panel.set_xticks(range(len(mine)), [str(cell.rows) for cell in mine])
        panel.set_xlabel("rows")
    panels[0].set_yticks(range(len(depths)), [f"{depth:g}" for depth in depths])
    panels[0].set_ylabel("depth of the fact")
    figure.colorbar(image, ax=list(panels), label="recall")
    figure.suptitle(experiment.title)
    return figure


def _recall(cell: Cell, depth: float) -> float:
    asked = [q for q in cell.questions if q.depth == depth]
    total = sum(q.asked for q in asked)
    return sum(q.right for q in asked) / total if total else float("nan")


def _kept_positions(report: Report) -> Any:
    """Draw what each layer still has of each part of the text, on a log scale."""
    found = _most(report, lambda _, group: sum(bool(cell.kept) for cell in group.cells))
    if found is None:
        return None
    experiment, group = found
    cells = [cell for cell in group.cells if cell.kept]
    rows = sorted({cell.budget_rows for cell in cells})
    middle = rows[len(rows) // 2]
    wanted = (group.baseline, "random", "paper_heavy", "peak", "default", "tuned_by_layer")
    shown = [c for c in cells if c.budget_rows == middle and c.contender in wanted]
    shown = shown[: _SHOWN_KEPT + 1] or cells[:_SHOWN_KEPT]
    colors = importlib.import_module("matplotlib.colors")
    scale = colors.LogNorm(vmin=_LEAST_SHARE, vmax=1, clip=True)
    layers = len(shown[0].kept)
    figure = new_figure(9, 1.2 + len(shown) * (0.7 + 0.14 * layers))
    panels = figure.subplots(len(shown), 1, squeeze=False, sharex=True)[:, 0]
    image: Any = None
    for panel, cell in zip(panels, shown, strict=True):
        image = panel.imshow(
            cell.kept,
            norm=scale,
            cmap="magma",
            aspect="auto",
            interpolation="nearest",
            extent=(0, cell.length, layers - 0.5, -0.5),
        )
        panel.set_title(f"{cell.title}, {cell.rows} rows", fontsize=9)
        panel.set_ylabel("layer")
        if layers <= _ALL_NAMED:
            panel.set_yticks(range(layers))
    panels[-1].set_xlabel("position in the text")
    figure.colorbar(image, ax=list(panels), label="share of rows still there (log)")
    figure.suptitle(experiment.title)
    return figure
