"""How work tells what it does, without knowing who looks."""

from __future__ import annotations

from typing import Protocol


class Say(Protocol):
    """Takes one line about what is being done; `done` for what is finished."""

    def __call__(self, text: str, *, done: bool = False) -> None:
        """Tell it."""


def silent(text: str, *, done: bool = False) -> None:
    """Tell nobody."""
