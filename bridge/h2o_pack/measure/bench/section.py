"""One table of text, and the sentences that stand beside tables."""

from __future__ import annotations

from dataclasses import dataclass

from h2o_pack.measure.bench.report import Report
from h2o_pack.measure.bench.timing import Timing


@dataclass(frozen=True)
class Section:
    """One table; the first column is text, the others are figures or verdicts."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def machine_line(report: Report) -> str:
    """The machine in one sentence."""
    m = report.machine
    return (
        f"{m.processor}, {m.cores} cores, {m.system}, instruction set {m.instruction_set}, "
        f"load {m.load:g} at the start; python {m.python}, mlx {m.mlx}, mlx-lm {m.mlx_lm}, "
        f"h2o-pack {m.h2o_pack}; one core does {report.peak / 1e9:.0f}e9 multiply-adds a second"
    )


def summary(report: Report) -> str:
    """How many goals are met, and what could not be measured."""
    goals = [each for each in report.claims if each.goal is not None]
    met = sum(each.verdict == "met" for each in goals)
    missing = not_run(report.not_run)
    return f"{met} of {len(goals)} goals are met{missing and '; ' + missing}"


def figures(timing: Timing) -> tuple[str, str]:
    """A median, and its quartiles, in microseconds."""
    first, third = timing.quartiles
    return f"{timing.median:,.1f}", f"{first:,.1f} .. {third:,.1f}"


def not_run(reasons: dict[str, str]) -> str:
    """Which contenders are missing, and why."""
    return "; ".join(f"not run: {name} ({why})" for name, why in reasons.items())
