"""The settings of one layer's cache: which rows it keeps, and what it reads of the others.

The core derives defaults and refuses settings that contradict each other
(cexport/h2o/policy_rules.h).
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from h2o_py import _policy
from h2o_py.errors import H2OConfigError, H2OConfigWarning, nearest
from h2o_py.policy_fields import (
    ALLOWED,
    FIELDS,
    LARGEST,
    NAMED_POLICIES,
    RECALL_FIELDS,
    Field,
    PolicySettings,
    RecallSettings,
)


@dataclasses.dataclass(frozen=True)
class H2ORecall(RecallSettings):
    """The settings of recall, which reads evicted tokens from an archive.

    `h2o_py.policy_fields.RecallSettings` documents the settings.

    Raises:
        H2OConfigError: a value is not allowed.

    """

    def __post_init__(self) -> None:
        if isinstance(self.layers, list):
            object.__setattr__(self, "layers", tuple(self.layers))
        with worded(_given(self)):
            _policy.check_recall(_given(self))

    @classmethod
    def from_value(cls, value: Any) -> H2ORecall | None:
        """Read a configuration's `recall`: a mapping of settings, true for defaults, or null.

        Raises:
            H2OConfigError: the type is wrong, a key is unknown, or a value is not allowed.

        """
        if value is None or isinstance(value, cls):
            return value
        if value is True:
            return cls()
        if not isinstance(value, Mapping):
            raise _not_settings(value)
        _check_names(value, [field.name for field in RECALL_FIELDS], "recall.")
        return cls(**value)

    @classmethod
    def from_words(cls, words: Iterable[str]) -> H2ORecall:
        """Read settings from the words KEY=VALUE of a command line.

        Raises:
            H2OConfigError: a key is unknown, or a value is not allowed.

        """
        types = {field.name: field.type for field in RECALL_FIELDS}
        pairs = [word.partition("=")[::2] for word in words]
        values = {name: _read(text, types.get(name)) for name, text in pairs}
        _check_names(values, [*types], "recall.")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values for JSON."""
        values = dataclasses.asdict(self)
        values["layers"] = None if self.layers is None else list(self.layers)
        return values

    def of_layer(self, index: int) -> H2ORecall | None:
        """Return the settings of one layer; None if `layers` does not list it."""
        if self.layers is not None and index not in self.layers:
            return None
        if self.layers is None and self.store is None:
            return self
        store = None if self.store is None else f"{self.store}/layer-{index:03}"
        return dataclasses.replace(self, layers=None, store=store)


@dataclasses.dataclass(frozen=True)
class H2OConfig(PolicySettings):
    """The eviction policy of one layer's cache.

    A cache never evicts the first `sink_size` positions, the newest `recent_budget` positions
    and the `pinned` ranges. Of the other rows, it evicts the one with the lowest score. Rows
    that no budget claims hold heavy hitters too.

    `h2o_py.policy_fields.PolicySettings` documents the settings. In addition, `recall` is an
    `H2ORecall`, or None for no recall, which is the default.

    Raises:
        H2OConfigError: a value is not allowed, or the budgets leave nothing to evict.

    """

    recall: H2ORecall | None = None

    def __post_init__(self) -> None:
        pinned = _pairs(self.pinned)
        recall = _given(self.recall) if isinstance(self.recall, H2ORecall) else None
        with worded({**_given(self), **(recall or {})}):
            defaults, remarks = _policy.complete({**_given(self), "pinned": pinned}, recall)
        for name, value in {**defaults, "pinned": pinned}.items():
            object.__setattr__(self, name, value)
        for code, values in remarks:
            warnings.warn(H2OConfigWarning(code, **values), stacklevel=3)
        if self.recall is not None and recall is None:
            raise _not_settings(self.recall)

    @classmethod
    def unbounded(cls, **changes: Any) -> H2OConfig:
        """A configuration that evicts nothing: its caches keep every token, without a ledger.

        Raises:
            H2OConfigError: as for the class.

        """
        return cls(max_size=LARGEST, **changes)

    @property
    def evicts(self) -> bool:
        """Whether the cache is bounded; otherwise it keeps every token and needs no ledger."""
        return self.max_size < LARGEST

    @classmethod
    def paper(cls, max_size: int, **changes: Any) -> H2OConfig:
        """The published policy (H2O on MLX): moving average of |logit|.

        Raises:
            H2OConfigError: as for the class.

        """
        [values] = [policy.values for policy in NAMED_POLICIES if policy.name == "paper"]
        return cls(max_size, **{**values, **changes})

    def of_layer(self, index: int) -> H2OConfig:
        """The configuration of one layer's cache.

        It has no recall if `recall.layers` does not list the layer. If the archive is in
        files, the layer has its own folder in `recall.store`.
        """
        recall = None if self.recall is None else self.recall.of_layer(index)
        if recall is self.recall:
            return self
        with without_warnings():
            return dataclasses.replace(self, recall=recall)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> H2OConfig:
        """Read what `to_dict` writes; a missing key gets its default.

        `recall` is a mapping of its settings, true for all defaults, or null.

        Raises:
            H2OConfigError: a key is unknown, a required one is missing, or a value is not
                allowed.

        """
        _check_names(values, [*(field.name for field in FIELDS), "recall"])
        for field in FIELDS:
            if field.required and field.name not in values:
                raise H2OConfigError("missing_field", field=field.name)
        return cls(**{**values, "recall": H2ORecall.from_value(values.get("recall"))})

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, including defaults; without `recall` if there is none."""
        values = dataclasses.asdict(self)
        values["pinned"] = [list(bounds) for bounds in self.pinned]
        if self.recall is None:
            del values["recall"]
        else:
            values["recall"] = self.recall.to_dict()
        return values


POLICIES: dict[str, Callable[..., H2OConfig]] = {
    "standard": H2OConfig,
    "paper": H2OConfig.paper,
}
"""Functions that make a configuration from `max_size` and other settings, by policy name."""


def check(field: Field, value: Any) -> None:
    """Refuse a value that its setting does not allow.

    Raises:
        H2OConfigError: the value is not allowed.

    """
    with worded({field.name: value}):
        _policy.check(field.name, value)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Silence warnings about configurations whose user has seen them or needs none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", H2OConfigWarning)
        yield


@contextmanager
def worded(settings: Mapping[str, Any]) -> Iterator[None]:
    """Raise an H2OConfigError if the core refuses one of the settings.

    settings: the values by name; without them, errors have the core's text of a value.
    """
    try:
        yield
    except _policy.PolicyError as error:
        code, values = error.args
        if "value" in values:
            field = str(values["field"]).removeprefix("recall.")
            values["value"] = settings.get(field, values["value"])
        if code == "out_of_range":
            values["allowed"] = ALLOWED[str(values["allowed"])].format(**values)
        if "known" in values:
            name = values.get("value", values["field"])
            values["near"] = nearest(name, str(values["known"]).split(", "))
        raise H2OConfigError(code, **values) from None


def _given(settings: H2OConfig | H2ORecall) -> dict[str, Any]:
    return {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}


def _pairs(ranges: Any) -> Any:
    """Convert a sequence of ranges to tuples; return any other value unchanged."""
    try:
        return tuple(tuple(bounds) for bounds in ranges)
    except TypeError:
        return ranges


def _check_names(values: Mapping[str, Any], names: list[str], prefix: str = "") -> None:
    for key in values:
        if key not in names:
            raise H2OConfigError(
                "unknown_field",
                field=f"{prefix}{key}",
                known=", ".join(names),
                near=nearest(key, names),
            )


def _not_settings(value: object) -> H2OConfigError:
    return H2OConfigError(
        "out_of_range", field="recall", value=value, allowed=ALLOWED["recall"]
    )


def _read(text: str, kind: str | None) -> Any:
    """Convert a setting's text to its type; return the text if this is impossible."""
    try:
        if kind == "layers":
            return tuple(int(part) for part in text.split(",") if part)
        return text if kind in {None, "folder"} else int(text)
    except ValueError:
        return text
