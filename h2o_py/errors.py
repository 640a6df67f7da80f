"""Errors and warnings of h2o_py as values; the front end turns them into text.

An error has a code, values, and if it concerns a file, the place in that file. `WORDING`, from
interface/errors.toml, has a template for each code: `{max_size}` is a value, and
`{name.max_size}` is the name of that setting. A command line passes a naming function that
returns flags; without one, settings have their names in Python and JSON.
"""

from __future__ import annotations

import difflib
import os
import string
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from h2o_py.policy_fields import CONTENT_CHANGED, WORDING

Naming = Callable[[str], str]


def plain(field: str) -> str:
    """The name of a setting in Python and in JSON."""
    return field


class _Message(Exception):  # noqa: N818  the base of errors and warnings
    """A code of `WORDING` with its values, and the place in a file, if there is one."""

    def __init__(self, code: str, *, where: str = "", **values: Any) -> None:
        super().__init__(code, values)
        self.code = code
        self.where = where
        self.values: Mapping[str, Any] = values

    @property
    def field(self) -> str:
        """The name of the setting to change; "" if there is none."""
        return str(self.values.get("field", WORDING[self.code].field))

    def what(self, name: Naming = plain) -> str:
        """What is wrong, without a full stop."""
        return _filled(WORDING[self.code].what, self.values, name)

    def remedy(self, name: Naming = plain) -> str:
        """What to do, a sentence; "" if there is nothing to suggest."""
        template = WORDING[self.code].remedy
        keys = {key for _, key, _, _ in string.Formatter().parse(template) if key}
        if not template or not all(self.values.get(key, True) for key in keys):
            return ""
        text = _filled(template, self.values, name)
        return text if text.endswith(("?", ".")) else f"{text}."

    def text(self, name: Naming = plain) -> str:
        """The whole message: the place, what is wrong, and the remedy."""
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.what(name)}. {self.remedy(name)}".rstrip()

    def __str__(self) -> str:
        return self.text()

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), self.code, self.where, dict(self.values))


class H2OError(_Message, ValueError):
    """An input, a model or a state that h2o_py refuses."""

    def at(self, where: str) -> H2OError:
        """Return the same error with a place in a file."""
        return type(self)(self.code, where=where, **self.values)


class H2OConfigError(H2OError):
    """A policy or storage that cannot be used; `field` names the setting."""

    @classmethod
    def unknown_choice(
        cls, field: str, value: object, known: Iterable[object]
    ) -> H2OConfigError:
        """The error for a value that is not among the known ones."""
        names = [str(name) for name in known]
        near = nearest(value, names) if isinstance(value, str) else ""
        return cls(
            "unknown_choice", field=field, value=value, known=", ".join(names), near=near
        )


class H2OBudgetsError(H2OError):
    """A budgets document that is invalid or was made for another model."""


class H2OModelError(H2OError):
    """A model that cannot use H2O caches."""


class H2OStateError(H2OError):
    """A cache that is used in a way its state does not allow."""


class H2OFileError(H2OError):
    """Caches that cannot be saved, or a file that cannot be loaded as caches."""


class H2OConfigWarning(_Message, UserWarning):
    """A setting that works but is known to give poor text."""


class H2OScoresMissingWarning(_Message, UserWarning):
    """Attention did not pass through the cache, so the cache gets no scores."""


class H2ORecallWarning(_Message, UserWarning):
    """Recall is off, or its archive no longer contains the oldest tokens."""


_reported: set[str] = set()


def say_once(code: str, path: str = "", error: int = 0) -> None:
    """Warn, once in a process for each code, that a cache works without scores or recall.

    Args:
        code: one of `WORDING`.
        path: the folder or file of an archive.
        error: errno, or 0 if the system reported none.

    """
    if code in _reported:
        return
    _reported.add(code)
    kind = H2OScoresMissingWarning if code == "not_routed" else H2ORecallWarning
    warnings.warn(kind(code, **of_archive(path, error)), stacklevel=4)


def of_archive(path: str, error: int) -> dict[str, Any]:
    """Return the values of a message about an archive in files.

    error: errno, or 0 if the system reported none.
    """
    reason = os.strerror(error) if error else CONTENT_CHANGED
    return {"path": path, "reason": reason}


def nearest(name: object, known: Iterable[str]) -> str:
    """Return the known name that is most like `name`, or "" if none is; case is ignored.

    Prefers names that begin with `name`, and among them the shortest.
    """
    text = str(name).lower()
    folded = {candidate.lower(): candidate for candidate in known}
    longer = sorted((key for key in folded if text and key.startswith(text)), key=len)
    close = longer or difflib.get_close_matches(text, folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else ""


class _Names:
    def __init__(self, name: Naming, values: Mapping[str, Any]) -> None:
        self._name = name
        self._field = values.get("field", "field")

    def __getattr__(self, field: str) -> str:
        return self._name(str(self._field) if field == "field" else field)


def _filled(template: str, values: Mapping[str, Any], name: Naming) -> str:
    return template.format(**values, name=_Names(name, values))


def _remade(kind: type[_Message], code: str, where: str, values: dict[str, Any]) -> _Message:
    return kind(code, where=where, **values)
