"""How people see a report, in 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2o_pack.prove.expected import LEVELS
from h2o_pack.prove.figures import amount, expected
from h2o_pack.prove.ids import part_of
from h2o_pack.prove.report import (
    AS_EXPECTED,
    DIFFERS,
    NOT_RUN,
    Counts,
    ProofReport,
    Verdict,
)

if TYPE_CHECKING:
    from rich.console import Console

    from h2o_pack.prove.keep import ImportedProofs
    from h2o_pack.prove.read import CheckedProof

STYLES = {AS_EXPECTED: "green", DIFFERS: "red", NOT_RUN: "yellow"}


def print_report(report: ProofReport, console: Console) -> None:
    """Show levels in a row each, all else and what differs in full, and what was not run."""
    from rich.table import Table

    machine = report.machine
    named = " ".join(each for each in (machine.identifier, machine.gpu or machine.chip) if each)
    table = Table(
        title=f"{named}, {machine.system} {machine.system_version}: {report.setting.model}",
        title_justify="left",
    )
    table.add_column("check", overflow="fold")
    for column in ("expected", "measured"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for level in LEVELS:
        checks = [each for each in report.checks if part_of(each.id) == level]
        counts = Counts.of(checks)
        if counts.as_expected:
            table.add_row(level, "-", f"{counts.as_expected} checks", styled(AS_EXPECTED))
    for check in report.checks:
        if part_of(check.id) in LEVELS and check.verdict == AS_EXPECTED:
            continue
        measured = amount(check.measured, check.unit)
        table.add_row(check.id, expected(check), measured, styled(check.verdict))
    console.print(table)
    for check in report.checks:
        if check.why:
            console.print(f"{check.id}: {NOT_RUN}: {check.why}", markup=False)
        elif check.verdict == DIFFERS:
            console.print(f"{check.id}: {DIFFERS}: {check.how}", markup=False)
    console.print(summary(report.counts), markup=False)


def styled(verdict: Verdict) -> str:
    """Color a verdict."""
    style = STYLES.get(verdict)
    return f"[{style}]{verdict}[/{style}]" if style else verdict


def print_checked(checked: CheckedProof, console: Console) -> None:
    """Say that a report holds together, and what was not computed again."""
    console.print(f"{checked.file}: {checked.machine}; {summary(checked.counts)}", markup=False)
    for each in checked.not_recomputed:
        console.print(f"not computed again: {each}", markup=False)


def print_imported(imported: ImportedProofs, console: Console) -> None:
    """Say what is kept and what changed."""
    reports, facts = len(imported.reports), imported.facts
    console.print(
        f"{reports} report{' is' if reports == 1 else 's are'} kept; "
        f"{facts} {'number' if facts == 1 else 'numbers'} for plans",
        markup=False,
    )
    for each in imported.no_margin:
        console.print(f"no margin follows from {each}", markup=False)
    for each in imported.changed:
        console.print(f"changed: {each}", markup=False)


def summary(counts: Counts) -> str:
    """Return the counts in one line."""
    return (
        f"{counts.as_expected} as expected, {counts.differs} differ, "
        f"{counts.measured} measured, {counts.not_run} not run"
    )
