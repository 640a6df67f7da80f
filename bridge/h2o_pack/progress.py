"""How work tells what it does, without knowing who looks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal, Protocol

Unit = Literal["bytes", "items"]


class BarAdvance(Protocol):
    """Moves a bar on by `amount` of its unit."""

    def __call__(self, amount: int) -> None:
        """Move it."""


class ProgressReporter(Protocol):
    """Takes one line about what is being done; `done` for what is finished."""

    def __call__(self, text: str, *, done: bool = False) -> None:
        """Tell it."""

    def bar(
        self, text: str, total: int, unit: Unit = "bytes"
    ) -> AbstractContextManager[BarAdvance]:
        """Show how far something long has come, until the block ends.

        Args:
            text: what is being done.
            total: how much there is to do, in `unit`.
            unit: what is counted.

        """


class Silent:
    """A `ProgressReporter` that tells nobody."""

    def __call__(self, text: str, *, done: bool = False) -> None:
        """Tell nobody."""

    @contextmanager
    def bar(self, text: str, total: int, unit: Unit = "bytes") -> Iterator[BarAdvance]:  # noqa: ARG002
        """Show nothing."""
        yield lambda _amount: None


silent = Silent()
