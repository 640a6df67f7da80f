"""Reads JSON that others wrote: bounded, and never as code."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from h2o_pack.errors import unreadable

CONFIG_BYTES = 1 << 20
INDEX_BYTES = 64 << 20  # a name and a shard for each of at most some 100,000 tensors


class RepeatedKeyError(ValueError):
    """An object gives a key twice, so that two readers may read two things."""


def read_object(path: Path, most: int = CONFIG_BYTES) -> dict[str, Any]:
    """Read a JSON object of at most `most` bytes; UserError when it is none."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe may have no end, or no beginning
            raise unreadable(path, f"{path.name} is not a regular file")
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise unreadable(path, f"{path.name} cannot be read: {error.strerror}") from error
    return parse_object(data, path.name, str(path), most)


def parse_object(
    data: bytes, name: str, where: str, most: int = CONFIG_BYTES, *, unique: bool = False
) -> dict[str, Any]:
    """Parse a JSON object in UTF-8; unique: a key that is given twice is an error.

    Infinity is let through, which configurations have and JSON5 readers take.
    """
    if len(data) > most:
        raise unreadable(where, f"{name} is larger than {most >> 20} MiB")
    try:
        document = json.loads(
            data.decode(), object_pairs_hook=once if unique else None, parse_constant=constant
        )
    except RepeatedKeyError as error:
        raise unreadable(where, f"{name} {error}") from error
    except (ValueError, RecursionError) as error:
        raise unreadable(where, f"{name} is not valid JSON") from error
    if not isinstance(document, dict):
        raise unreadable(where, f"{name} is not a JSON object")
    return document


def constant(name: str) -> float:
    """Return what a name of Python's JSON stands for; NaN is refused."""
    if name == "NaN":
        raise ValueError("NaN is not JSON")
    return float(name)


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs, each key given once."""
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise RepeatedKeyError(f"gives {twice[:60]!a} twice")
    return made
