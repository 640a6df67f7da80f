"""Options of a profile: the model, the text, and how much of it to read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LEAST_TOKENS = 64
FIRST_ROW = 64
"""Means leave out the queries before this position: they see too few tokens."""


@dataclass(frozen=True)
class Options:
    """A model, a text, and how much of the text to read.

    text: a file; None for the text that the demo model was not trained on. tokens: per sample.
    """

    model: str = "demo"
    text: Path | None = None
    tokens: int = 1024
    samples: int = 4

    @property
    def first_row(self) -> int:
        """Position of the first query that counts in means."""
        return min(FIRST_ROW, self.tokens // 4)
