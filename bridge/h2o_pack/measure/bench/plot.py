"""A report as a picture; needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from h2o_pack.measure.bench.report import Report
from h2o_pack.measure.pictures import new_figure


def save(report: Report, path: Path) -> None:
    """Write a PNG: the step of each cache, its growth with rows, tokens per second."""
    figure = new_figure(15, 5.2)
    steps, growth, model = figure.subplots(1, 3, width_ratios=(1.5, 1, 1.1))
    _steps(report, steps)
    _growth(report, growth)
    _model(report, model)
    m = report.machine
    figure.suptitle(f"h2o-pack {m.h2o_pack} on {m.processor} ({m.instruction_set})")
    figure.savefig(path, dpi=130)


def _steps(report: Report, axes: Any) -> None:
    titles = list(report.contenders.values())
    height = 0.8 / len(report.steps)
    for i, each in enumerate(report.steps):
        timings = [each.timings[name] for name in report.contenders]
        medians = [timing.median for timing in timings]
        spread = [
            [timing.median - timing.first_quartile for timing in timings],
            [timing.third_quartile - timing.median for timing in timings],
        ]
        places = [
            row + (i - (len(report.steps) - 1) / 2) * height for row in range(len(titles))
        ]
        axes.barh(places, medians, height, xerr=spread, label=each.dtype)
    axes.set_yticks(range(len(titles)), titles)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("microseconds per step (log)")
    axes.set_title(f"Decode step of one layer, {report.options.capacity} rows")
    axes.legend()


def _growth(report: Report, axes: Any) -> None:
    scaling = report.scaling
    sizes = list(scaling.by_capacity)
    axes.plot(sizes, [timing.median for timing in scaling.by_capacity.values()], "o")
    axes.plot(
        sizes, [scaling.start + scaling.slope * size for size in sizes], label="fitted line"
    )
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("rows kept, C")
    axes.set_ylabel("microseconds per step")
    axes.set_title(f"Dense step, {scaling.dtype}")
    axes.legend()


def _model(report: Report, axes: Any) -> None:
    model = report.model
    titles = [report.contenders[name] for name in model.timings]
    bars = axes.barh(titles, [timing.tokens_per_second for timing in model.timings.values()])
    axes.bar_label(bars, fmt="%.0f", padding=3)
    axes.margins(x=0.16)
    axes.invert_yaxis()
    axes.set_xlabel("tokens per second")
    axes.set_title(f"{model.name}, {model.layers} layers, {model.dtype}, C = {model.capacity}")
