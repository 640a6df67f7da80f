"""How many of the newest rows a policy keeps anyway, by the number of all rows."""

from __future__ import annotations

import dataclasses


def half(max_size: int) -> int:
    """The published split: half for heavy hitters, what is left for recent tokens."""
    return max_size - 4 - max_size // 2


def quarter(max_size: int) -> int:
    """A quarter, but 64 where half of the rows hold as many."""
    return min(half(max_size), max(max_size // 4, 64))


def everything(max_size: int) -> int:
    """All rows but the sinks and the one that goes."""
    return max_size - 4 - 1


@dataclasses.dataclass(frozen=True)
class Share:
    """A part of the rows."""

    part: float

    def __call__(self, max_size: int) -> int:
        """Rows for recent tokens."""
        return int(max_size * self.part)
