"""Reads and writes text and JSON; what fails says which file and what to do.

JSON that others wrote is read with bounds, and never as code.
"""

from __future__ import annotations

import errno
import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from h2o_pack.errors import ExitCode, UserError, unreadable
from h2o_pack.files.paths import reason

_T = TypeVar("_T")
CONFIG_BYTES = 1 << 20
INDEX_BYTES = 64 << 20  # a name and a shard for each of at most some 100,000 tensors
SHORT_JSON = 200
"""Characters of a value that `json_by_lines` leaves on one line."""


def usage_error(what: str, remedy: str) -> UserError:
    """Make the error for an option or a file that cannot be used."""
    return UserError(what, remedy=remedy, code=ExitCode.USAGE)


MOST_BYTES = 64 << 20
"""Of a file of settings, records or text."""


def read_file(path: Path, most: int = MOST_BYTES) -> bytes:
    """Read a file of at most `most` bytes.

    A pipe or a device may have no end, or no beginning: of those only what a shell hands over,
    below /dev, is read.

    Raises:
        OSError: it cannot be read, is no file, or is longer; `strerror` says which.

    """
    mode = path.stat().st_mode
    # Opening a folder is the system's error.
    ordinary = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    if not ordinary and not path.is_relative_to("/dev"):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB", str(path))
    return data


def read_text(path: Path, remedy: str) -> str:
    """Read a file of UTF-8 text.

    Raises:
        UserError: it cannot be read, or is not such text; `remedy` says what to give.

    """
    try:
        return read_file(path).decode()
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


class RepeatedKeyError(ValueError):
    """An object gives a key twice, so that two readers may read two things."""


def read_object(path: Path, most: int = CONFIG_BYTES) -> dict[str, Any]:
    """Read a JSON object of at most `most` bytes; UserError for anything else."""
    try:
        data = read_file(path, most)
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
    """Return the value of a constant in Python's JSON; NaN is refused."""
    if name == "NaN":
        raise ValueError("NaN is not JSON")
    return float(name)


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs, each key given once."""
    document = dict(pairs)
    if len(document) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise RepeatedKeyError(f"has the key {twice[:60]!a} twice")
    return document


@contextmanager
def writing(
    output: Path, what: str = "", remedy: str = "Give another output path."
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
    """Write JSON with a line for each value that is `depth` containers deep.

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
