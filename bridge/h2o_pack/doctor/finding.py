"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta

from h2o_pack.results import Result, doc

Status = Literal["ok", "warning", "problem", "not applicable"]


@dataclass(frozen=True)
class Finding:
    """What a check found, and what to do about it."""

    name: Annotated[str, doc("Of the check.")]
    status: Annotated[
        Status,
        doc(
            "problem: something that h2o-pack does on this machine fails. warning: it may "
            "fail, or is slower."
        ),
    ]
    what: Annotated[str, Meta(min_length=1), doc("What was found.")]
    remedy: Annotated[str, doc("What to do; empty where nothing is to be done.")] = ""
    blocks: Annotated[bool, doc("Whether h2o-pack ios cannot work because of it.")] = False


@dataclass(frozen=True)
class Checkup(Result):
    """What this machine has of what h2o-pack needs."""

    blocked: Annotated[
        bool, doc("Whether h2o-pack ios cannot work here; then the exit code is 5.")
    ] = field(init=False)
    findings: Annotated[tuple[Finding, ...], doc("One per check, in a fixed order.")]

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocked", any(each.blocks for each in self.findings))


def ok(name: str, what: str) -> Finding:
    """All is well."""
    return Finding(name, "ok", what)


def warning(name: str, what: str, remedy: str) -> Finding:
    """Something may not work, or not well."""
    return Finding(name, "warning", what, remedy)


def problem(name: str, what: str, remedy: str, *, blocks: bool = False) -> Finding:
    """Something does not work."""
    return Finding(name, "problem", what, remedy, blocks)


def not_applicable(name: str, what: str) -> Finding:
    """The check makes no sense here."""
    return Finding(name, "not applicable", what)
