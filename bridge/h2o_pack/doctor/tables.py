"""Findings for people at a terminal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from h2o_pack.doctor.finding import Checkup, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

STYLES = {"ok": "green", "warning": "yellow", "problem": "red", "not applicable": "dim"}


def print_checkup(checkup: Checkup, console: Console) -> None:
    """Show a table, the remedies below their findings, and the sum."""
    print_findings(checkup.findings, console)
    console.print(summary(checkup), markup=False)


def print_findings(findings: Iterable[Finding], console: Console) -> None:
    """Show a table, the remedies below their findings."""
    from rich.table import Table
    from rich.text import Text

    table = Table("check", "", "finding", box=None, pad_edge=False)
    for each in findings:
        said = Text(each.what)
        if each.remedy:
            said.append(f"\n{each.remedy}", style="italic")
        table.add_row(each.name, Text(each.status, style=STYLES[each.status]), said)
    console.print(table)


def counted(findings: Iterable[Finding]) -> str:
    """Return how many findings there are of each kind, as a sentence; nothing for none."""
    counts: Counter[str] = Counter(each.status for each in findings)
    kinds = ", ".join(f"{counts[status]} {status}" for status in STYLES if counts[status])
    return f"{kinds}. " if kinds else ""


def summary(checkup: Checkup) -> str:
    """Return how many findings there are of each kind, and what they mean."""
    kinds = counted(checkup.findings)
    blocking = [each.name for each in checkup.findings if each.blocks]
    if blocking:
        named = ", ".join(blocking)
        return f"{kinds}h2o-pack ios cannot work here until this is put right: {named}."
    return f"{kinds}h2o-pack ios can work here."
