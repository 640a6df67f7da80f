"""Checks the settings of recall, reads them, and works out how many rows there are for it."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from h2o_py import policy_rules
from h2o_py.config_wording import ALLOWED
from h2o_py.errors import H2OConfigError, H2OConfigWarning, nearest
from h2o_py.policy_fields import (
    RECALL_FIELDS,
    RECALL_ROWS_SHRINK,
    Field,
    most_recall_rows,
)

_NAMES = [field.name for field in RECALL_FIELDS]


def complete(recall: Any) -> None:
    """Check the settings of a frozen H2ORecall and make a tuple of a list.

    Raises:
        H2OConfigError: a value is not allowed.

    """
    for field in RECALL_FIELDS:
        value = getattr(recall, field.name)
        if isinstance(value, list):
            value = tuple(value)
            object.__setattr__(recall, field.name, value)
        if value is not None or field.default is not None:
            policy_rules.check(field, value, "recall.")


def check_room(config: Any) -> None:
    """Warn where a cache cannot hold as many recalled rows as were asked for."""
    if config.recall is None:
        return
    asked = config.recall.rows or 1
    if config.recall_rows < asked:
        values = {"asked": asked, "rows": config.recall_rows, "max_size": config.max_size}
        warning = H2OConfigWarning(RECALL_ROWS_SHRINK, field="recall.rows", **values)
        warnings.warn(warning, stacklevel=4)


def rows(config: Any) -> int:
    """Rows that a recall chooses (M): those asked for, as far as eviction can spare them."""
    if config.recall is None:
        return 0
    formula = RECALL_FIELDS[_NAMES.index("rows")].formula
    assert formula is not None  # noqa: S101  stated in interface/policy.toml
    asked = formula(config) if config.recall.rows is None else config.recall.rows
    return max(0, min(int(asked), most_recall_rows(config)))


def of_layer(recall: Any, index: int) -> Any:
    """The settings of one layer, from those of all; None where they leave it out."""
    if recall is None or (recall.layers is not None and index not in recall.layers):
        return None
    store = None if recall.store is None else f"{recall.store}/layer-{index:03}"
    return dataclasses.replace(recall, layers=None, store=store)


@contextmanager
def warned_before() -> Iterator[None]:
    """Give no warnings of a configuration that is made from another."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", H2OConfigWarning)
        yield


def not_settings(value: object) -> H2OConfigError:
    """The error for something else in the place of recall's settings."""
    return policy_rules.out_of_range("recall", value, ALLOWED["recall"])


def check_names(values: object) -> None:
    """Refuse what is no mapping, and keys that are no settings of recall."""
    if not isinstance(values, Mapping):
        raise not_settings(values)
    for key in values:
        if key not in _NAMES:
            known, near = ", ".join(_NAMES), nearest(key, _NAMES)
            raise H2OConfigError("unknown_field", field=f"recall.{key}", known=known, near=near)


def values_of(words: Iterable[str]) -> dict[str, Any]:
    """The settings in words KEY=VALUE; those of unknown keys stay text."""
    fields = {field.name: field for field in RECALL_FIELDS}
    values: dict[str, Any] = {}
    for word in words:
        name, _, text = word.partition("=")
        values[name] = _value(fields[name], text) if name in fields else text
    return values


def _value(field: Field, text: str) -> Any:
    """What a setting's text says; the text where it says nothing of its type."""
    try:
        if field.type == "layers":
            return tuple(int(part) for part in text.split(",") if part)
        return text if field.type == "folder" else int(text)
    except ValueError:
        return text
