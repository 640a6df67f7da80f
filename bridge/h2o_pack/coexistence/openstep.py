"""Reads property lists in the old OpenStep form, which Xcode's project files have."""

from __future__ import annotations

import re
from typing import TypeAlias

Value: TypeAlias = "str | list[Value] | dict[str, Value]"

TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | (?P<mark>[{}()=;,]) | "(?P<quoted>(?:[^"\\]|\\.)*)" | (?P<plain>[A-Za-z0-9_$/:.-]+)""",
    re.VERBOSE | re.DOTALL,
)


def read(text: str) -> Value:
    """Return the value that `text` describes; ValueError where it is none."""
    tokens = tokenize(text)
    value, end = parse(tokens, 0)
    if end != len(tokens):
        raise ValueError(f"after the value: {tokens[end:][:5]}")
    return value


def tokenize(text: str) -> list[tuple[str, str]]:
    """Return the kinds and texts of a list's marks and words."""
    tokens = []
    start = 0
    while start < len(text):
        match = TOKEN.match(text, start)
        if not match:
            raise ValueError(f"unreadable: {text[start : start + 40]!r}")
        tokens += [(kind, word) for kind, word in match.groupdict().items() if word is not None]
        start = match.end()
    return tokens


def parse(tokens: list[tuple[str, str]], start: int) -> tuple[Value, int]:
    """Return the value that begins at `start`, and where it ends."""
    kind, word = tokens[start]
    if kind != "mark":
        return word, start + 1
    if word == "(":
        return parse_array(tokens, start + 1)
    if word == "{":
        return parse_dictionary(tokens, start + 1)
    raise ValueError(f"no value begins with {word!r}")


def parse_array(tokens: list[tuple[str, str]], start: int) -> tuple[Value, int]:
    """Return the array whose parenthesis is before `start`, and where it ends."""
    values: list[Value] = []
    while tokens[start] != ("mark", ")"):
        value, start = parse(tokens, start)
        values.append(value)
        if tokens[start] == ("mark", ","):
            start += 1
    return values, start + 1


def parse_dictionary(tokens: list[tuple[str, str]], start: int) -> tuple[Value, int]:
    """Return the dictionary whose brace is before `start`, and where it ends."""
    values: dict[str, Value] = {}
    while tokens[start] != ("mark", "}"):
        kind, key = tokens[start]
        if kind == "mark" or tokens[start + 1] != ("mark", "=") or key in values:
            raise ValueError(f"no new key: {tokens[start : start + 3]}")
        values[key], start = parse(tokens, start + 2)
        if tokens[start] != ("mark", ";"):
            raise ValueError(f"no semicolon after {key!r}")
        start += 1
    return values, start + 1
