"""The names of checks: a part, "/", and what of it, as in "memory/total"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Tool = Literal["h2o-pack", "app"]

KERNELS, OP, TRACE, TOKENS = "level 0", "level 1", "level 2", "level 3"
PIPELINES, MEMORY, SPEED, PUBLISHED = "pipelines", "memory", "speed", "published"
DISPATCHES, LIMITS, THERMAL, PRESSURE = "dispatches", "limits", "thermal", "pressure"

PARTS: Mapping[Tool, tuple[str, ...]] = {
    "h2o-pack": (
        KERNELS,
        OP,
        TRACE,
        TOKENS,
        PIPELINES,
        DISPATCHES,
        MEMORY,
        SPEED,
        PUBLISHED,
    ),
    "app": (TRACE, MEMORY, SPEED, THERMAL, PRESSURE, LIMITS),
}
"""The parts that a report has at least one check of, run or not, by what wrote it."""

DEFAULT_LIMIT = f"{LIMITS}/default"
ENTITLED_LIMIT = f"{LIMITS}/entitled"
"""Bytes that one app may use: what it used and what was still free, counted at once."""

DECODE_COLD = f"{SPEED}/decode cold"
"""Generated tokens per second of an app's first minute."""


def part_of(name: str) -> str:
    """Return the part that a check belongs to."""
    return name.partition("/")[0]


def memory_id(term: str) -> str:
    """Return the check of a term of the plan, or of its sums "MLX" and "total"."""
    return f"{MEMORY}/{term}"
