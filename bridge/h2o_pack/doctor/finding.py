"""The result of a check, and how it is shown."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
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

    name: Annotated[str, doc("Name of the check, or of the app's file or package.")]
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
        bool,
        doc(
            "Whether `h2o-pack ios` cannot work because of this finding, or a package cannot "
            "be added to the app."
        ),
    ] = False


@dataclass(frozen=True)
class Checkup(Result):
    """The results of all checks of this machine, or of an app."""

    blocked: Annotated[
        bool,
        doc(
            "Whether `h2o-pack ios` cannot work on this machine, with exit code 5, or a "
            "package cannot be added to the app, with exit code 1."
        ),
    ] = field(init=False)
    findings: Annotated[
        tuple[Finding, ...],
        doc("One finding per check, in a fixed order; of an app, its files and conflicts."),
    ]

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocked", any(finding.blocks for finding in self.findings))


# `check_up` fills in the name of a finding that has none: the name of its check.


def ok(what: str, name: str = "") -> Finding:
    """Make a finding with status "ok": everything is right."""
    return Finding(name, "ok", what)


def warning(what: str, remedy: str) -> Finding:
    """Make a finding with status "warning": something may not work, or not well."""
    return Finding("", "warning", what, remedy)


def problem(what: str, remedy: str, name: str = "", *, blocks: bool = False) -> Finding:
    """Make a finding with status "problem": something does not work."""
    return Finding(name, "problem", what, remedy, blocks)


STYLES = {"ok": "green", "warning": "dark_orange3", "problem": "red", "not applicable": "dim"}


def print_checkup(checkup: Checkup, console: Console, app: Path | None = None) -> None:
    """Show a table, each remedy below its finding, and a summary; app: what was checked."""
    table = Table("check", "", "finding", box=None, pad_edge=False)
    for finding in checkup.findings:
        text = Text(finding.what)
        if finding.remedy:
            text.append(f"\n{finding.remedy}", style="italic")
        table.add_row(finding.name, Text(finding.status, style=STYLES[finding.status]), text)
    console.print(table)
    caption(summary(checkup, app), console, "")


def summary(checkup: Checkup, app: Path | None) -> str:
    """Return the number of findings of each kind, and what they mean."""
    counts: Counter[str] = Counter(finding.status for finding in checkup.findings)
    kinds = ", ".join(f"{counts[status]} {status}" for status in STYLES if counts[status])
    works, fails = "`h2o-pack ios` works on this machine", "`h2o-pack ios` does not work"
    if app is not None:
        works = "A package of h2o-pack can be added to this app"
        fails = "A package of h2o-pack cannot be added to this app"
    blocking = [finding.name for finding in checkup.findings if finding.blocks]
    if blocking:
        return f"{kinds}. {fails} until you solve this: {', '.join(blocking)}."
    return f"{kinds}. {works}."
