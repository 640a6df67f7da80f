"""Reads the fields of a dataclass from a JSON object, and notes all that do not fit.

`count()` and the others declare fields: like dataclasses.field they return Any, so that
`layers: int = count()` has the type that is written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from h2o_pack.errors import Problems, shown

MAX_COUNT = 1 << 24
MAX_LAYERS = 10_000
_CHECK = "check"

Read = TypeVar("Read")
Check = Callable[[object], "str | None"]


def count(*, default: int | None = None, most: int = MAX_COUNT, least: int = 1) -> Any:
    """Declare a whole number of `least` to `most`; required without a default.

    A default may lie outside of that, to mean "not given".
    """

    def check(value: object) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            return f"a whole number of {least:,} to {most:,}"
        return None

    return _declare(check, default, 0)


def layer_count() -> Any:
    """Declare the number of layers."""
    return count(most=MAX_LAYERS)


def counts(*, required: bool = False, least: int = 0) -> Any:
    """Declare a list of whole numbers; None is "not given"."""

    def check(value: object) -> str | None:
        fits = isinstance(value, list) and all(
            isinstance(each, int) and not isinstance(each, bool) and least <= each <= MAX_COUNT
            for each in value[: MAX_LAYERS + 1]
        )
        return (
            None if fits and short(value) else "a list of whole numbers, one per layer or fewer"
        )

    return _declare(check, dataclasses.MISSING if required else None, ())


def names(*, required: bool = False) -> Any:
    """Declare a list of texts; None is "not given"."""

    def check(value: object) -> str | None:
        fits = isinstance(value, list) and all(isinstance(each, str) for each in value)
        return None if fits and short(value) else "a list of texts, at most one per layer"

    return _declare(check, dataclasses.MISSING if required else None, ())


def letters(*, required: bool = False) -> Any:
    """Declare a text, or a list of its parts, read as a tuple; None is "not given"."""

    def check(value: object) -> str | None:
        parts = list(value) if isinstance(value, str) else value
        fits = isinstance(parts, list) and all(isinstance(each, str) for each in parts)
        return None if fits and short(parts) else "a text of at most one letter per layer"

    return _declare(check, dataclasses.MISSING if required else None, ())


def number(*, default: float | None = None) -> Any:
    """Declare a positive number of ordinary size."""

    def check(value: object) -> str | None:
        return None if ordinary(value) else "a positive number"

    return _declare(check, default, 0.0)


def numbers(*, required: bool = False) -> Any:
    """Declare a list of positive numbers of ordinary size; None is "not given"."""

    def check(value: object) -> str | None:
        fits = short(value) and all(ordinary(each) for each in value)  # type: ignore[attr-defined]
        return None if fits else "a list of positive numbers, at most one per layer"

    return _declare(check, dataclasses.MISSING if required else None, ())


def flag(*, default: bool) -> Any:
    """Declare true or false."""
    return _declare(
        lambda value: None if isinstance(value, bool) else "true or false", default, empty=False
    )


def ordinary(value: object) -> bool:
    """Whether a value is a positive number of ordinary size; NaN is none."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 < value < MAX_COUNT
    )


def short(value: object) -> bool:
    """Whether a list has no more entries than a model may have layers."""
    return isinstance(value, list) and len(value) <= MAX_LAYERS


def _declare(check: Check, default: Any, empty: object) -> Any:
    metadata = {_CHECK: check, "empty": empty}
    if default is dataclasses.MISSING or (default is None and empty == 0):
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def read(
    kind: type[Read], document: Mapping[str, Any], problems: Problems, inside: str = ""
) -> Read:
    """Make a `kind` of the object's fields; a field that does not fit becomes 0 or empty.

    inside: the key of config.json whose object this is, for the messages.
    """
    values = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if _CHECK not in field.metadata:
            continue
        name = f"{inside}.{field.name}" if inside else field.name
        value = document.get(field.name)
        if value is None:
            if field.default is dataclasses.MISSING:
                problems.add(f"config.json lacks {name}")
                values[field.name] = field.metadata["empty"]
            continue
        wanted = field.metadata[_CHECK](value)
        if wanted is None:
            values[field.name] = tuple(value) if isinstance(value, (list, str)) else value
        else:
            problems.add(f"{name} is {shown(value)} but should be {wanted}")
            values[field.name] = field.metadata["empty"]
    return kind(**values)
