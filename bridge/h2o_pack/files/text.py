"""Reads and writes text and JSON; errors name the file and what to do.

JSON that others wrote is read with limits, and never as code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from h2o_pack.errors import model_error, output_error, unreadable, usage_error
from h2o_pack.files.paths import reason
from h2o_py.files import read_file

_T = TypeVar("_T")
CONFIG_BYTES = 1 << 20
INDEX_BYTES = 64 << 20  # enough for the names and files of about 100,000 tensors
SHORT_JSON = 200
"""The most characters of a value that `json_by_lines` writes on one line."""


def read_text(path: Path, remedy: str) -> str:
    """Read a file of UTF-8 text; UserError with the remedy if that fails."""
    try:
        return read_file(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise usage_error(f"{path} cannot be read: {reason(error)}", remedy) from None


def read_json(path: Path, kind: type[_T], name: str, remedy: str) -> _T:
    """Read a file of JSON into its type; UserError, which calls it `name`, if that fails."""
    import msgspec  # not needed for `h2o-pack --help`

    text = read_text(path, remedy)
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise usage_error(f"{path} is not {name}: {error}", remedy) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise usage_error(f"{path} is not JSON: {error}", remedy) from None


class RepeatedKeyError(ValueError):
    """A key occurs twice in an object, so that two readers may read different values."""


LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""The beginning of the file that git leaves in place of a file that Git LFS has not fetched."""


def refuse_pointer(data: bytes, name: str, where: str) -> None:
    """Refuse a file of which only the first bytes are given if it is a Git LFS pointer."""
    if data.startswith(LFS_POINTER[: len(data)]) and data[:8] == LFS_POINTER[:8]:
        raise model_error(
            f"{name} is a Git LFS pointer: the file itself was not downloaded",
            "Run `git lfs pull` in the clone, then run the command again.",
            where=where,
        )


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
    """Parse a JSON object in UTF-8; unique: a key that occurs twice is an error.

    Infinity and NaN are accepted, as mlx_lm accepts them.
    """
    if len(data) > most:
        raise unreadable(where, f"{name} is larger than {most >> 20} MiB")
    refuse_pointer(data, name, where)
    try:
        document = json.loads(data.decode(), object_pairs_hook=once if unique else None)
    except RepeatedKeyError as error:
        raise unreadable(where, f"{name} {error}") from error
    except (ValueError, RecursionError) as error:
        raise unreadable(where, f"{name} is not valid JSON") from error
    if not isinstance(document, dict):
        raise unreadable(where, f"{name} is not a JSON object")
    if HALF.search(data) and has_halves(document):
        raise unreadable(where, f"{name} contains half of a character, such as \\ud800")
    return document


HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""An escape that is a half of a character, and with another one a whole character."""


def has_halves(document: object) -> bool:
    """Whether a text in a JSON document contains a half of a character, which UTF-8 has not."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return True
    return False


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object from pairs of keys and values; ValueError if a key occurs twice."""
    document = dict(pairs)
    if len(document) < len(pairs):
        keys: set[str] = set()
        twice = next(key for key, _ in pairs if key in keys or keys.add(key))  # type: ignore[func-returns-value]
        raise RepeatedKeyError(f"has the key {twice[:60]!a} twice")
    return document


@contextmanager
def writing(
    output: Path, what: str = "", remedy: str = "Give another output path."
) -> Iterator[None]:
    """Turn a failure to write below `output` into an error that names the file.

    what: the name of the written file in the error, "" for its path.

    Raises UserError: a file or folder cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise output_error(
            f"{what or error.filename or output} cannot be written: {reason(error)}",
            remedy,
            where=str(output) if what else None,
        ) from error


def json_by_lines(document: object, depth: int) -> str:
    """Write JSON with one line for each value that is `depth` containers deep.

    Outer containers take several lines, or one line if they are short, so that a table has one
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
