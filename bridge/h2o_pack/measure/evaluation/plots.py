"""Pictures of a report; needs matplotlib."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from h2o_pack.measure.evaluation.results import Cell, ExperimentResult, GroupResult, Report
from h2o_pack.measure.pictures import new_figure

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
