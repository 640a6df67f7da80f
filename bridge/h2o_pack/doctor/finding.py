"""The result of a check, and how it is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta
from rich.console import Console
from rich.table import Table
from rich.text import Text

from h2o_pack.printing import caption
from h2o_pack.results import Result, doc

Status = Literal["ok", "warning", "problem", "not applicable"]


@dataclass(frozen=True)
class Finding:
    """The result of a check, and what to do about it."""

    name: Annotated[str, doc("Name of the check.")]
    status: Annotated[
        Status,
        doc(
            "problem: part of h2o-pack does not work on this machine. warning: part of "
            "h2o-pack may fail, or is slow."
        ),
    ]
    what: Annotated[str, Meta(min_length=1), doc("Result of the check.")]
    remedy: Annotated[str, doc("What to do; empty if nothing is necessary.")] = ""
    blocks: Annotated[
        bool, doc("Whether `h2o-pack ios` cannot work because of this finding.")
    ] = False


@dataclass(frozen=True)
class Checkup(Result):
    """The results of all checks of this machine."""

    blocked: Annotated[
        bool,
        doc("Whether `h2o-pack ios` cannot work on this machine; the exit code is then 5."),
    ] = field(init=False)
    findings: Annotated[tuple[Finding, ...], doc("One finding per check, in a fixed order.")]

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocked", any(finding.blocks for finding in self.findings))


# `check_up` fills in the name of a finding that has none: the name of its check.


def ok(what: str, name: str = "") -> Finding:
    """Make a finding with status "ok": everything is right."""
    return Finding(name, "ok", what)


def warning(what: str, remedy: str, name: str = "") -> Finding:
    """Make a finding with status "warning": something may not work, or not well."""
    return Finding(name, "warning", what, remedy)


def problem(what: str, remedy: str, name: str = "", *, blocks: bool = False) -> Finding:
    """Make a finding with status "problem": something does not work."""
    return Finding(name, "problem", what, remedy, blocks)


STYLES = {"ok": "green", "warning": "dark_orange3", "problem": "red", "not applicable": "dim"}


def print_checkup(checkup: Checkup, console: Console) -> None:
    """Show a table, each remedy below its finding, and a summary."""
    print_findings(checkup.findings, console)
    caption(summary(checkup), console, "")


def print_findings(findings: Iterable[Finding], console: Console) -> None:
    """Show a table, each remedy below its finding."""
    table = Table("check", "", "finding", box=None, pad_edge=False)
    for finding in findings:
        text = Text(finding.what)
        if finding.remedy:
            text.append(f"\n{finding.remedy}", style="italic")
        table.add_row(finding.name, Text(finding.status, style=STYLES[finding.status]), text)
    console.print(table)


def counted(findings: Iterable[Finding]) -> str:
    """Return the number of findings of each kind, as a sentence; "" without findings."""
    counts: Counter[str] = Counter(finding.status for finding in findings)
    kinds = ", ".join(f"{counts[status]} {status}" for status in STYLES if counts[status])
    return f"{kinds}. " if kinds else ""


def summary(checkup: Checkup) -> str:
    """Return the number of findings of each kind, and what they mean."""
    kinds = counted(checkup.findings)
    blocking = [finding.name for finding in checkup.findings if finding.blocks]
    if blocking:
        names = ", ".join(blocking)
        return f"{kinds}`h2o-pack ios` does not work until you solve this: {names}."
    return f"{kinds}`h2o-pack ios` works on this machine."
