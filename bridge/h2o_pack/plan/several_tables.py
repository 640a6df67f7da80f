"""Plans of several models of one package as tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2o_pack.plan.report import DeviceFit, PlanResult
from h2o_pack.plan.several import LoadedModel, PlansResult
from h2o_pack.plan.tables import (
    PLAIN,
    caption,
    print_note,
    print_remedies,
    print_speed_rule,
    print_terms,
    size_sentence,
    styled,
)
from h2o_pack.sizes import gigabytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

LOADS = "loads"


def print_reports(result: PlansResult, console: Console) -> None:
    """Show what each model takes, and which one the app loads on each device."""
    for report in result.models:
        print_terms(report, console)
    if result.loaded:
        print_loaded(result, console)
    print_note(f"app: with all models {size_sentence(result.size)}", console)
    for said in notes(result.models):
        print_note(f"note: {said}", console)
    for row, taken in zip(result.models[-1].devices, result.loaded, strict=True):
        if taken.model is None:
            print_remedies(row, console)
    print_speed_rule(result.models[0], console)


def print_loaded(result: PlansResult, console: Console) -> None:
    """Show each model on each device, and which one the app loads there."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title="devices, GB", title_justify="left", box=SIMPLE_HEAD, **PLAIN)
    table.add_column("device", overflow="fold")
    table.add_column("model", overflow="fold")
    for name in ("needs", "left", "tok/s", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for number, taken in enumerate(result.loaded):
        for report in result.models:
            first = report is result.models[0]
            cells = row_of(report, report.devices[number], taken)
            table.add_row(taken.name if first else "", *cells)
    console.print(table)
    caption(
        "left: of an app's limit with both memory entitlements, which generated apps have; "
        "loads: the app takes the largest model that fits the memory that is free.",
        console,
    )


def row_of(report: PlanResult, fit: DeviceFit, taken: LoadedModel) -> tuple[str, ...]:
    """Return the cells of a model on a device."""
    share = fit.entitled.headroom_share
    return (
        report.model,
        gigabytes(fit.needed),
        "-" if share is None else f"{share:.0%}",
        "-" if fit.speed is None else str(fit.speed),
        f"[bold]{LOADS}[/]" if taken.model == report.model else styled(fit.entitled),
    )


def notes(reports: tuple[PlanResult, ...]) -> Iterator[str]:
    """Yield what to know beforehand: of all models, then of some by name."""
    common = [each for each in reports[0].advice if all(each in r.advice for r in reports)]
    yield from common
    for report in reports:
        for said in report.advice:
            if said not in common:
                yield f"{report.model}: {said}"
