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

    Args:
        model: what mlx_lm loads: a folder or an id on huggingface.co; "demo" is the
            embedded model.
        text: a UTF-8 file; None for the text that the embedded model never saw.
        tokens: length of a sample.
        samples: pieces of the text, evenly spaced.
        max_kv: rows that each cache keeps while a step is timed; None for a quarter of
            `tokens`.
        time_steps: whether a step's parts are timed too.
        quick: fewer repetitions when timing.

    Raises:
        ValueError: a value is out of range.

    """

    model: str = "demo"
    text: Path | None = None
    tokens: int = 1024
    samples: int = 4
    max_kv: int | None = None
    time_steps: bool = True
    quick: bool = False

    def __post_init__(self) -> None:
        if self.tokens < LEAST_TOKENS:
            raise ValueError(
                f"tokens = {self.tokens} is below {LEAST_TOKENS}. So short a text shows "
                "little of what attention does."
            )
        if self.samples < 1:
            raise ValueError(f"samples = {self.samples} must be 1 or more.")
        if self.max_kv is not None and self.max_kv < LEAST_ROWS:
            raise ValueError(
                f"max_kv = {self.max_kv} is below {LEAST_ROWS}. So few rows are no measure "
                "of a step."
            )

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
        """Bursts of each part of a step that are timed together."""
        return 7 if self.quick else 30
