"""Reads TOML strictly into dataclasses: unknown keys and wrong values are errors.

A file is described by a dataclass with a field for each kind of `[[table]]` that it has:

    @dataclass(frozen=True)
    class PetsFile: dog: tuple[Dog, ...] = () cat: tuple[Cat, ...] = ()

A dataclass may check values that belong together in `__post_init__`, raising ValueError.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from h2o_pack.errors import ExitCode, Problems, UserError, nearest
from h2o_py.files import read_file

File = TypeVar("File")
Row = TypeVar("Row")


@dataclass(frozen=True)
class Blame:
    """How errors of a file are reported: what the user should do, and the exit code."""

    remedy: str = "This file is part of h2o-pack: install h2o-pack again."
    code: ExitCode = ExitCode.INTERNAL

    def error(self, what: str, where: object, near: str = "") -> UserError:
        """Make the error for a mistake in a file."""
        return UserError(what, where=str(where), remedy=near + self.remedy, code=self.code)


PART_OF_PACKAGE = Blame()


def read_tables(path: Path, kind: type[File], blame: Blame = PART_OF_PACKAGE) -> File:
    """Read a file of several kinds of `[[key]]` tables; UserError for all mistakes in it."""
    document, text = load(path, blame)
    kinds = {key: get_args(hint)[0] for key, hint in get_type_hints(kind).items()}
    return kind(**rows_of(document, text, path, kinds, blame))


def read_rows(
    path: Path, key: str, kind: type[Row], blame: Blame = PART_OF_PACKAGE, *, unique: str = ""
) -> tuple[Row, ...]:
    """Read a file that has only `[[key]]` tables; see `read_tables`.

    unique: the field in which no two tables may have the same value, ignoring case.
    """
    document, text = load(path, blame)
    return rows_of(document, text, path, {key: kind}, blame, unique=unique).get(key, ())


def load(path: Path, blame: Blame = PART_OF_PACKAGE) -> tuple[dict[str, Any], str]:
    """Return the parsed content of a TOML file, and its text."""
    try:
        text = read_file(path).decode()
        return msgspec.toml.decode(text, type=dict[str, Any]), text
    except OSError as error:
        raise blame.error(f"cannot read the file: {error.strerror}", path) from error
    except (ValueError, RecursionError) as error:  # not TOML, or not UTF-8
        raise blame.error(f"the file is not TOML: {error}", path) from error


def rows_of(
    document: Mapping[str, Any],
    text: str,
    path: Path,
    kinds: Mapping[str, type[Any]],
    blame: Blame = PART_OF_PACKAGE,
    *,
    unique: str = "",
) -> dict[str, tuple[Any, ...]]:
    """Return the tables of a loaded document by their keys, each as its dataclass."""
    problems = Problems()
    tables: dict[str, tuple[Any, ...]] = {}
    for key, rows in document.items():
        if key not in kinds:
            kinds_of_table = ", ".join(f"[[{kind}]]" for kind in kinds)
            what = f"unknown key {key!r}: the file may have only {kinds_of_table}"
            problems.found.append(blame.error(what, path, nearest(key, kinds)))
            continue
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            what = f"{key} must be a list of tables, each of which begins with [[{key}]]"
            problems.found.append(blame.error(what, path))
            continue
        fields = get_type_hints(kinds[key])
        counts = Counter[str]()
        places = [f"{path}:{line}" for line in lines_of(text, key)]
        converted = []
        for where, row in zip(places + [str(path)] * len(rows), rows, strict=False):
            unknown = [name for name in row if name not in fields]
            for name in unknown:
                what = f"[[{key}]] has an unknown key {name!r}"
                problems.found.append(blame.error(what, where, nearest(name, fields)))
            if unknown:
                continue
            try:
                # The class must make the row, because msgspec does not fill in its defaults.
                converted.append(kinds[key](**vars(msgspec.convert(row, kinds[key]))))
            except msgspec.ValidationError as error:
                problems.found.append(blame.error(f"[[{key}]]: {error}", where))
                continue
            value = str(row.get(unique, "")).lower()
            counts[value] += 1
            if unique and counts[value] > 1:
                what = f'[[{key}]] "{row[unique]}" occurs twice'
                problems.found.append(blame.error(what, where))
        tables[key] = tuple(converted)
    problems.refuse()
    return tables


def lines_of(text: str, key: str) -> list[int]:
    """Return the numbers of the lines at which the `[[key]]` tables begin."""
    return [
        number
        for number, line in enumerate(text.splitlines(), start=1)
        if line.replace(" ", "").startswith(f"[[{key}]]")
    ]


def line_of(text: str, key: str, start: int = 1) -> int:
    """Return the number of the first line with `key = ...` from `start` on, or `start`."""
    begins = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
    for number, line in enumerate(text.splitlines()[start - 1 :], start=start):
        if begins.match(line):
            return number
    return start


def parse_toml(text: str, kind: type[File], where: str) -> File:
    """Turn TOML of h2o-pack into a `msgspec.Struct` that forbids unknown fields.

    where: the name of the file in errors. Raises UserError, which names the entry: the text is
    not TOML, or an entry is unknown or does not have its type.
    """
    try:
        return msgspec.toml.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PART_OF_PACKAGE.error(str(error), where) from None
