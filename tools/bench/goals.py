"""Compares the ratios of one run with their goals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from h2o_pack.measure.tables import Table

Direction = Literal["at least", "at most", "below"]


@dataclass(frozen=True)
class Claim:
    """A ratio of one run, and its goal."""

    name: str
    dtype: str
    value: float
    direction: Direction
    goal: float

    @property
    def verdict(self) -> Literal["met", "not met"]:
        """Whether the goal is met."""
        is_met = {
            "at least": self.value >= self.goal,
            "at most": self.value <= self.goal,
            "below": self.value < self.goal,
        }
        return "met" if is_met[self.direction] else "not met"


@dataclass(frozen=True)
class Section:
    """The result of a measurement: a table, and ratios with their goals."""

    table: Table
    claims: tuple[Claim, ...] = ()


def missed(claims: Iterable[Claim]) -> Table:
    """Return the table of the goals that are not met."""
    rows = tuple(
        (
            claim.name,
            claim.dtype,
            f"{claim.value:.3g}",
            f"{claim.direction} {claim.goal:.3g}",
        )
        for claim in claims
        if claim.verdict == "not met"
    )
    header = ("ratio", "dtype", "measured", "goal")
    return Table("Goals that are not met", header, rows)
