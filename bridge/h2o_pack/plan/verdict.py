"""Whether a plan fits a device, and the nearest settings that do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from h2o_pack.results import doc

Fit = Literal["fits", "tight", "does not fit", "unknown"]
TIGHT = 0.1  # of the limit: what estimates of the app and of the limit may be wrong by


@dataclass(frozen=True)
class Verdict:
    """The plan against a limit; null where nobody knows it."""

    limit: Annotated[int | None, doc("Bytes.")]
    headroom: Annotated[int | None, doc("Bytes left of the limit; negative if over it.")]
    headroom_share: Annotated[float | None, doc("The headroom as a part of the limit.")]
    verdict: Annotated[Fit, doc("tight: less than a tenth of the limit is left.")]


def verdict(needed: int, limit: int | None) -> Verdict:
    """Hold needed bytes against a limit."""
    if limit is None:
        return Verdict(None, None, None, "unknown")
    share = (limit - needed) / limit
    fit: Fit = "does not fit" if share < 0 else "tight" if share < TIGHT else "fits"
    return Verdict(limit, limit - needed, round(share, 4), fit)


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
