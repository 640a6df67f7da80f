"""What makes a report unusable, and where it is in the document."""

from __future__ import annotations

from dataclasses import dataclass

from h2o_pack.prove.report import Check


@dataclass(frozen=True)
class Contradiction:
    """What a field says that other fields, or the code, deny."""

    field: str
    what: str


def place(n: int, check: Check) -> str:
    """Name a check in the document."""
    return f'checks[{n}] "{check.id}"'
