"""The checksum of a report: the same from every language, however it writes numbers.

It is the sha256 of a line of UTF-8 for each value of the document but `checksum`, in the
order of the lines' bytes: the value's path with "." between its parts (an index of an array is
one), "=", and the value: a string as it is after "s", a number after "n" as the 16
hexadecimal digits of its IEEE 754 double, "true", "false" or "null". Empty arrays and objects
have no line. Minus zero counts as zero.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from h2o_pack.prove.report import ProofReport


def with_checksum(report: ProofReport) -> ProofReport:
    """Return the report with its checksum."""
    return replace(report, checksum=checksum_of(report))


def checksum_of(report: ProofReport) -> str:
    """Return the hexadecimal sha256 of a report but for its checksum."""
    document: dict[str, Any] = msgspec.to_builtins(report)
    del document["checksum"]
    return hashlib.sha256(text_of(document).encode()).hexdigest()


def text_of(document: Any) -> str:
    """Return the lines of a document, in order."""
    lines = (f"{path}={value}\n" for path, value in leaves(document, ""))
    return "".join(sorted(lines, key=str.encode))


def leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of every value."""
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list | tuple):
        pairs = dict(enumerate(value)).items()
    else:
        yield path, value_text(value)
        return
    for key, each in pairs:
        yield from leaves(each, f"{path}.{key}" if path else str(key))


def value_text(value: str | float | bool | None) -> str:  # noqa: FBT001 - what JSON has
    """Return a value's text."""
    if isinstance(value, str):
        return f"s{value}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return "n" + struct.pack(">d", float(value) + 0.0).hex()
