"""Whether a plan fits a device, and the nearest settings that do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from h2o_pack.devices.facts import DEFAULT, ENTITLED

if TYPE_CHECKING:
    from collections.abc import Callable

    from h2o_pack.devices.listed import Listed
    from h2o_pack.memory.terms import MemoryPlan

Fit = Literal["fits", "tight", "does not fit", "unknown"]
TIGHT = 0.1  # of the limit: what estimates of the app and of the limit may be wrong by


@dataclass(frozen=True)
class Verdict:
    """A plan against one limit, in bytes; None where nobody knows the limit."""

    needed: int
    limit: int | None

    @property
    def headroom(self) -> int | None:
        """What is left of the limit; negative if the plan is over it."""
        return None if self.limit is None else self.limit - self.needed

    @property
    def share(self) -> float | None:
        """The headroom as a part of the limit."""
        return None if self.limit is None else (self.limit - self.needed) / self.limit

    @property
    def fit(self) -> Fit:
        """In a word; tight: less than a tenth of the limit is left."""
        if self.share is None:
            return "unknown"
        if self.share < 0:
            return "does not fit"
        return "tight" if self.share < TIGHT else "fits"

    def document(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "limit": self.limit,
            "headroom": self.headroom,
            "headroom_share": None if self.share is None else round(self.share, 4),
            "verdict": self.fit,
        }


def verdicts(plan: MemoryPlan, device: Listed) -> tuple[Verdict, Verdict]:
    """Without entitlements and with both."""
    return (
        Verdict(plan.total, device.amount(DEFAULT)),
        Verdict(plan.total, device.amount(ENTITLED)),
    )


def largest(limit: int, most: int, planned: Callable[[int], int], step: int = 1) -> int:
    """The largest value up to `most` whose planned bytes are within the limit; 0 if none.

    planned: bytes for a value, which must not fall as the value grows. step: values are
    multiples of it.
    """
    low, high = 0, most // step
    while low < high:
        middle = (low + high + 1) // 2
        if planned(middle * step) <= limit:
            low = middle
        else:
            high = middle - 1
    return low * step
