"""Types of options' values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from h2o_py.policy_fields import NAMED_POLICIES
from h2o_py.storages import STORAGE_BITS, SYNONYMS

POLICIES = tuple(policy.name for policy in NAMED_POLICIES)
KV = (*STORAGE_BITS, *SYNONYMS)
PATH = click.Path(path_type=Path)
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
POSITIVE = click.IntRange(min=1)


class PinnedRange(click.ParamType):  # type: ignore[type-arg]
    """A half-open range of positions, written A:B."""

    name = "A:B"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        """Read "A:B" as (A, B)."""
        begin, colon, end = str(value).partition(":")
        if not (colon and begin.isdecimal() and end.isdecimal() and int(begin) < int(end)):
            self.fail(f"{value!r} is not a range of positions such as 0:128", param, ctx)
        return int(begin), int(end)


class Policy(click.ParamType):  # type: ignore[type-arg]
    """A named policy, or a TOML file of settings."""

    name = f"[{'|'.join(POLICIES)}]|FILE"

    def convert(self, value: Any, param: Any, ctx: Any) -> str | Path:
        """Read a name as it is, and anything else as a file."""
        if value in POLICIES:
            return str(value)
        if Path(value).suffix != ".toml":
            self.fail(
                f"{value!r} is none of {', '.join(POLICIES)}, nor a .toml file", param, ctx
            )
        return Path(value)


class CommaSeparated(click.ParamType):  # type: ignore[type-arg]
    """One or more values with commas between them, each of one type."""

    def __init__(self, each: click.ParamType[Any] = click.STRING) -> None:
        self.each = each
        self.name = f"{each.name},..."

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[Any, ...]:
        """Read "a,b" as (a, b)."""
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",") if part.strip()]
        if not parts:
            self.fail(f"{value!r} has no value between its commas", param, ctx)
        return tuple(self.each.convert(part, param, ctx) for part in parts)


NAMES = CommaSeparated()
NUMBERS = CommaSeparated(click.INT)
COUNTS = CommaSeparated(POSITIVE)
