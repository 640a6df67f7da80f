"""Values of options that are lists."""

from __future__ import annotations

from typing import Any

import click


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
COUNTS = CommaSeparated(click.IntRange(min=1))
