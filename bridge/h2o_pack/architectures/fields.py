"""Reads the fields of a dataclass from a JSON object, and notes all that do not fit.

`count()` and the others declare fields: like dataclasses.field they return Any, so that
`layers: int = count()` has the type that is written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from h2o_pack.errors import Problems, shown
from h2o_pack.facts import Architecture

MAX_COUNT = 1 << 24
MAX_LAYERS = 10_000
UNNAMED = "-"  # the key of a field that is read only where a model type names one

Read = TypeVar("Read")


@dataclasses.dataclass(frozen=True)
class Rule:
    """What a value of config.json must be; empty: what stands for one that does not fit."""

    wanted: str
    fits: Callable[[Any], bool]
    empty: object
    key: str


def count(
    *, default: int | None = None, most: int = MAX_COUNT, least: int = 1, key: str = ""
) -> Any:
    """Declare a whole number of `least` to `most`; required without a default.

    A default may lie outside of that, to mean "not given". key: its name in config.json,
    where that is not the field's.
    """
    wanted = f"a whole number of {least:,} to {most:,}"
    return declare(Rule(wanted, lambda value: whole(value, least, most), 0, key), default)


def counts(*, least: int = 0, key: str = "") -> Any:
    """Declare a list of whole numbers, empty where none is given."""
    return declare_list(
        "a list of whole numbers, one per layer or fewer",
        lambda each: whole(each, least, MAX_COUNT),
        key,
    )


def names(*, key: str = "") -> Any:
    """Declare a list of texts, or a text of one letter per layer, empty where none is given."""
    return declare_list("a list of texts, at most one per layer", is_text, key)


def numbers(*, key: str = "") -> Any:
    """Declare a list of positive numbers of ordinary size, empty where none is given."""
    return declare_list("a list of positive numbers, at most one per layer", ordinary, key)


def number(*, default: float | None = None) -> Any:
    """Declare a positive number of ordinary size."""
    return declare(Rule("a positive number", ordinary, 0.0, ""), default)


def flag(*, default: bool) -> Any:
    """Declare true or false."""
    return declare(
        Rule("true or false", lambda value: isinstance(value, bool), empty=False, key=""),
        default,
    )


def declare_list(wanted: str, fits: Callable[[Any], bool], key: str) -> Any:
    """Declare a list with no more entries than a model may have layers."""

    def all_fit(value: object) -> bool:
        parts = list(value) if isinstance(value, str) and fits("") else value
        return isinstance(parts, list) and len(parts) <= MAX_LAYERS and all(map(fits, parts))

    return declare(Rule(wanted, all_fit, (), key), ())


def declare(rule: Rule, default: object) -> Any:
    """Declare a field; it is required if it has no default."""
    metadata = {"rule": rule}
    if default is None:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def whole(value: object, least: int, most: int) -> bool:
    """Whether a value is a whole number of least to most; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_text(value: object) -> bool:
    """Whether a value is a text."""
    return isinstance(value, str)


def ordinary(value: object) -> bool:
    """Whether a value is a positive number of ordinary size; NaN is none."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 < value < MAX_COUNT
    )


def key_of(read_from: object, name: str) -> str:
    """Return the key of config.json that a field of a dataclass is read from."""
    rule: Rule = read_from.__dataclass_fields__[name].metadata["rule"]  # type: ignore[attr-defined]
    return rule.key or name


def keys_of(kind: type, known: Architecture | None) -> dict[str, tuple[str, Rule, object]]:
    """Return each field that is read: its key in config.json, its rule, its default.

    The default is dataclasses.MISSING where the key is required.
    """
    found = {}
    for field in dataclasses.fields(kind):
        rule: Rule | None = field.metadata.get("rule")
        if rule is None or (known and field.name in known.unread):
            continue
        key, default = rule.key or field.name, field.default
        if known is not None:
            key = known.keys.get(field.name, key)
            default = known.defaults.get(key, default)
            if key in known.required:
                default = dataclasses.MISSING
        if key != UNNAMED:
            found[field.name] = (key, rule, default)
    return found


def read(
    kind: type[Read],
    document: Mapping[str, Any],
    problems: Problems,
    inside: str = "",
    known: Architecture | None = None,
) -> Read:
    """Make a `kind` of the object's fields; a field that does not fit becomes 0 or empty.

    inside: the key of config.json whose object this is, for the messages. known: how the
    model type's keys and defaults differ from the class's.
    """
    values = {}
    for name, (key, rule, default) in keys_of(kind, known).items():
        place = f"{inside}.{key}" if inside else key
        value = document.get(key)
        if value is None and default is not dataclasses.MISSING:
            values[name] = default
        elif value is None:
            problems.add(f"config.json lacks {place}")
            values[name] = rule.empty
        elif rule.fits(value):
            values[name] = tuple(value) if isinstance(value, (list, str)) else value
        else:
            problems.add(f"{place} is {shown(value)} but should be {rule.wanted}")
            values[name] = rule.empty
    return kind(**values)
