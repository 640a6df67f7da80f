"""Errors and warnings of h2o_py, in the words of the command line.

A message about an option names its flag; a message about a file names the file's keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from h2o_pack.errors import UserError, usage_error
from h2o_py.errors import H2OError, plain
from h2o_py.policy_fields import FIELDS, RECALL_FIELDS

OF_RECALL = {
    field.flag.removeprefix("--").replace("-", "_"): field
    for field in RECALL_FIELDS
    if field.flag
}
"""The settings of recall that have an option, by the name of the option."""

FLAGS = {
    "kv": "--kv",
    "archive": "--archive",
    **{name: field.flag for name, field in OF_RECALL.items()},
    **{f"recall.{field.name}": field.flag for field in OF_RECALL.values()},
    **{field.name: field.flag for field in FIELDS},
}


def flag(field: str) -> str:
    """Return the flag of a setting."""
    return FLAGS.get(field, field)


@contextmanager
def user_errors(command: str = "ios") -> Iterator[None]:
    """Raise errors of h2o_py in a block as UserError; remedies name the help of `command`."""
    try:
        yield
    except H2OError as error:
        raise user_error(error, command) from error


def user_error(error: H2OError, command: str) -> UserError:
    """Convert an error of h2o_py. The result names options or, for a wrong file, its keys."""
    name = plain if error.where else flag
    return usage_error(
        error.what(name),
        error.remedy(name) or f"See `h2o-pack {command} --help`.",
        where=error.where or None,
    )
