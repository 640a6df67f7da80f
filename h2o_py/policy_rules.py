"""Fills in the defaults of a policy and checks it, by what `policy_fields` states."""

from __future__ import annotations

import bisect
import math
import warnings
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from h2o_py.config_wording import ALLOWED
from h2o_py.errors import H2OConfigError, H2OConfigWarning, nearest
from h2o_py.policy_fields import (
    FIELDS,
    LARGEST,
    LARGEST_BYTES,
    NAMED_POLICIES,
    RULES,
    SCORES,
    Field,
)


def complete(config: Any) -> None:
    """Fill in the defaults of a frozen configuration that follow from other settings.

    Raises:
        H2OConfigError: a value is not allowed, or a rule between settings does not hold.

    """
    given = {field.name for field in FIELDS if getattr(config, field.name) is not None}
    for field in FIELDS:
        value = getattr(config, field.name)
        if field.type == "ranges":
            value = _ranges(field, value)
        elif value is None and field.formula is not None:
            value = field.formula(config)
            if field.below_least and field.least is not None and value < field.least:
                raise _too_small(field, config, given)
        object.__setattr__(config, field.name, value)
        check(field, value)
    for rule in RULES:
        if rule.holds(config):
            continue
        if rule.is_error:
            raise H2OConfigError(rule.code, **rule.values(config))
        warnings.warn(H2OConfigWarning(rule.code, **rule.values(config)), stacklevel=4)


def named(policy: str, max_size: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a named policy for `max_size` rows; `changes` come before its own."""
    found = next(each for each in NAMED_POLICIES if each.name == policy)
    settings = dict(found.values)
    if found.formulas and isinstance(max_size, int):
        settings.update(_by_formulas(found.formulas, max_size, changes))
    return {**settings, **changes}


def check_names(values: Mapping[str, Any], *, also: Iterable[str]) -> None:
    """Refuse keys that are no settings nor in `also`, and a missing one without a default."""
    names = [*(field.name for field in FIELDS), *also]
    for key in values:
        if key not in names:
            known, near = ", ".join(names), nearest(key, names)
            raise H2OConfigError("unknown_field", field=str(key), known=known, near=near)
    for field in FIELDS:
        if field.required and field.name not in values:
            raise H2OConfigError("missing_field", field=field.name)


def out_of_range(field: str, value: object, allowed: str) -> H2OConfigError:
    """The error for a value that its setting does not allow."""
    return H2OConfigError("out_of_range", field=field, value=value, allowed=allowed)


def unknown_choice(field: str, value: object, known: Iterable[str]) -> H2OConfigError:
    """The error for a name that is not among the known ones."""
    names = tuple(known)
    near = nearest(value, names)
    return H2OConfigError(
        "unknown_choice", field=field, value=value, known=", ".join(names), near=near
    )


def check(field: Field, value: Any, prefix: str = "") -> None:
    """Refuse a value that its setting does not allow; `prefix` stands before the name."""
    least, most = field.least, field.most
    name = f"{prefix}{field.name}"
    if field.type in ("integer", "bytes"):
        if not _is_integer(value):
            raise out_of_range(name, value, ALLOWED["integer"])
        most = LARGEST if field.type == "integer" else LARGEST_BYTES
        if not (least or 0) <= value <= most:
            allowed = ALLOWED["between"].format(least=least, most=most)
            raise out_of_range(name, value, allowed)
        if field.choices and value not in field.choices:
            choices = ", ".join(str(choice) for choice in field.choices)
            raise out_of_range(name, value, ALLOWED["choices"].format(choices=choices))
    if field.type == "number":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise out_of_range(name, value, ALLOWED["number"])
        most_allowed = math.inf if most is None else most
        if not (math.isfinite(value) and (least or 0) <= value <= most_allowed):
            words = ALLOWED["at_least" if most is None else "between"]
            raise out_of_range(name, value, words.format(least=least, most=most))
    if field.type == "score" and value not in [score.name for score in SCORES]:
        raise unknown_choice(name, value, [score.name for score in SCORES])
    if field.type == "layers" and not _are_layers(value):
        raise out_of_range(name, value, ALLOWED["layers"])
    if field.type == "folder" and not (isinstance(value, str) and value):
        raise out_of_range(name, value, ALLOWED["folder"])


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_layers(value: object) -> bool:
    return isinstance(value, tuple) and all(
        _is_integer(each) and 0 <= each <= LARGEST for each in value
    )


def _ranges(field: Field, ranges: Any) -> tuple[tuple[int, int], ...]:
    try:
        pairs = [tuple(bounds) for bounds in ranges]
    except TypeError:
        pairs = [(ranges,)]
    for pair in pairs:
        whole = all(_is_integer(x) for x in pair)
        if len(pair) != 2 or not whole or not 0 <= pair[0] < pair[1] <= LARGEST:  # noqa: PLR2004
            raise out_of_range(field.name, ranges, ALLOWED["ranges"])
    return tuple(pairs)


def _too_small(field: Field, config: Any, given: set[str]) -> H2OConfigError:
    """The error for a formula that gives too little, with the max_size that gives enough."""

    def value(size: int) -> Any:
        trial = SimpleNamespace(**{**vars(config), "max_size": size})
        for each in FIELDS[: FIELDS.index(field) + 1]:
            if each.formula is not None and each.name not in given:
                setattr(trial, each.name, each.formula(trial))
        return getattr(trial, field.name)

    values = {each.name: getattr(config, each.name) for each in FIELDS}
    smallest = bisect.bisect_left(range(LARGEST), field.least, key=value)
    return H2OConfigError(field.below_least, **values, smallest=smallest)


def _by_formulas(
    formulas: Mapping[str, Any], max_size: int, changes: Mapping[str, Any]
) -> dict[str, int]:
    """What the formulas give, or nothing if one gives less than its setting allows."""
    defaults = {field.name: changes.get(field.name, field.default) for field in FIELDS}
    base = SimpleNamespace(**{**defaults, "max_size": max_size})
    least = {field.name: field.least or 0 for field in FIELDS}
    found: dict[str, int] = {}
    for name, formula in formulas.items():
        found[name] = formula(base)
        if found[name] < least[name]:
            return {}
        setattr(base, name, found[name])
    return found
