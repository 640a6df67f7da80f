"""Options of a profile: the model, the text, and how much of it to read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LEAST_TOKENS = 64
LEAST_ROWS = 16
FIRST_ROW = 64
"""Means leave out the queries before this position: they see too few tokens."""


@dataclass(frozen=True)
class Options:
    """A model, a text, and how much of the text to read.

    text: a file; None for the text that the demo model was not trained on. tokens: per sample.
    max_kv: rows of each cache while a step is timed; None for a quarter of `tokens`.
    time_steps: whether to time a decode step. quick: time it with fewer repetitions.
    """

    model: str = "demo"
    text: Path | None = None
    tokens: int = 1024
    samples: int = 4
    max_kv: int | None = None
    time_steps: bool = True
    quick: bool = False

    @property
    def rows(self) -> int:
        """Rows of each cache while a step is timed (C)."""
        return self.max_kv or max(LEAST_ROWS, self.tokens // 4)

    @property
    def first_row(self) -> int:
        """Position of the first query that counts in means."""
        return min(FIRST_ROW, self.tokens // 4)

    @property
    def repetitions(self) -> int:
        """How often each part of a step is timed."""
        return 7 if self.quick else 30
