"""Reads and writes files that a user named; what fails says which and what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files.paths import reason

_T = TypeVar("_T")
SHORT_JSON = 200
"""Characters of a value that `json_by_lines` leaves on one line."""


def usage_error(what: str, remedy: str) -> UserError:
    """Make the error for an option or a file that cannot be used."""
    return UserError(what, remedy=remedy, code=ExitCode.USAGE)


def read_text(path: Path, remedy: str) -> str:
    """Read a file of UTF-8 text.

    Raises:
        UserError: it cannot be read, or is not such text; `remedy` says what to give.

    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise usage_error(f"{path} cannot be read: {reason(error)}", remedy) from None
    except UnicodeDecodeError as error:
        raise usage_error(f"{path} cannot be read: {error}", remedy) from None


def read_json(path: Path, kind: type[_T], name: str, remedy: str) -> _T:
    """Read a file of JSON into its type; errors call it `name`.

    Raises:
        UserError: it cannot be read, is not JSON or not of the type, and where.

    """
    import msgspec  # `h2o-pack --help` does without

    text = read_text(path, remedy)
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise usage_error(f"{path} is not {name}: {error}", remedy) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise usage_error(f"{path} is not JSON: {error}", remedy) from None


@contextmanager
def writing(
    output: Path, what: str = "", remedy: str = "Give another place for the output."
) -> Iterator[None]:
    """Turn a failure to write below `output` into an error that names the file.

    what: is written, "" for the file's own name.

    Raises:
        UserError: a file or folder cannot be written.

    """
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{what or error.filename or output} cannot be written: {reason(error)}",
            where=str(output) if what else None,
            remedy=remedy,
            code=ExitCode.OUTPUT,
        ) from error


def json_by_lines(document: object, depth: int) -> str:
    """Return JSON in which what lies `depth` containers deep has a line of its own.

    Containers above are written over several lines, short ones on one, so that a table has a
    line for each row or cell.
    """

    def written(value: object, level: int) -> str:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        if (
            level >= depth
            or len(text) <= SHORT_JSON
            or not isinstance(value, dict | list | tuple)
        ):
            return text
        if isinstance(value, dict):
            parts = [f"{json.dumps(key)}: {written(v, level + 1)}" for key, v in value.items()]
            return "{\n" + ",\n".join(parts) + "\n}"
        return "[\n" + ",\n".join(written(item, level + 1) for item in value) + "\n]"

    return written(document, 0) + "\n"
