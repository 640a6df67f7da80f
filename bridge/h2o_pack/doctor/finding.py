"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["ok", "warning", "problem", "not applicable"]


@dataclass(frozen=True)
class Finding:
    """A state of one thing, and what to do about it.

    status: "problem" where something that h2o-pack does here fails, "warning" where it
    may or is only slower. blocks: whether `h2o-pack ios` cannot work until it is put right.
    remedy: empty only where nothing is to be done.
    """

    name: str
    status: Status
    what: str
    remedy: str = ""
    blocks: bool = False


@dataclass(frozen=True)
class Checkup:
    """All findings, in the order of the checks."""

    findings: tuple[Finding, ...]

    @property
    def blocked(self) -> bool:
        """Whether `h2o-pack ios` cannot work on this machine."""
        return any(each.blocks for each in self.findings)

    def document(self) -> dict[str, Any]:
        """What --json prints (schemas/doctor.json)."""
        return {
            "format": 1,
            "blocked": self.blocked,
            "findings": [vars(each) for each in self.findings],
        }


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
