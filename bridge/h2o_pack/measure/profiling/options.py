"""What to profile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LEAST_TOKENS = 64
LEAST_ROWS = 16
FIRST_ROW = 64
"""Queries before this position see too few tokens to be spread: means leave them out."""


@dataclass(frozen=True)
class Options:
    """A model, a text, and how much of it.

    text: None for the text that the demo model was not trained on. tokens: of a sample. max_kv:
    rows of each cache while a step is timed; None for a quarter of `tokens`. quick: fewer
    repetitions when timing.
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
        """Position of the first query that enters means."""
        return min(FIRST_ROW, self.tokens // 4)

    @property
    def repetitions(self) -> int:
        """How often each part of a step is timed."""
        return 7 if self.quick else 30
