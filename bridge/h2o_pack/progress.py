"""The interface by which long tasks report their progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal, Protocol

Unit = Literal["bytes", "items"]
BarAdvance = Callable[[int], None]
"""Advances a bar by an amount of its unit."""


def no_progress(_amount: int) -> None:
    """Show no progress."""


class ProgressReporter(Protocol):
    """Shows a line about the current step; `done` marks a finished step."""

    def __call__(self, text: str, *, done: bool = False) -> None:
        """Show the line."""

    def bar(
        self, text: str, total: int, unit: Unit = "bytes"
    ) -> AbstractContextManager[BarAdvance]:
        """Show the progress of a long task of size `total`, until the block ends."""


class Silent:
    """A `ProgressReporter` that shows nothing."""

    def __call__(self, text: str, *, done: bool = False) -> None:
        """Show nothing."""

    @contextmanager
    def bar(self, text: str, total: int, unit: Unit = "bytes") -> Iterator[BarAdvance]:  # noqa: ARG002
        """Show nothing."""
        yield no_progress


silent = Silent()
