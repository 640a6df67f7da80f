"""Reads Xcode's old format of property lists, in which its projects are."""

import json
import re
from typing import Any

from h2o_pack.files.text import once

TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | (?P<mark>[{}()=;,]) | "(?P<quoted>(?:[^"\\]|\\.)*)" | (?P<plain>[A-Za-z0-9_$/:.-]+)""",
    re.VERBOSE | re.DOTALL,
)
MARKS = {"{": "{", "}": "}", "(": "[", ")": "]", "=": ":", ";": ",", ",": ","}


def read_openstep(content: str) -> Any:
    """Read a property list in Xcode's old format; ValueError for any other text."""
    parts: list[str] = []
    start = 0
    while start < len(content):
        match = TOKEN.match(content, start)
        if match is None:
            raise ValueError(f"unreadable: {content[start : start + 40]!r}")
        start = match.end()
        mark, quoted, plain = match["mark"], match["quoted"], match["plain"]
        if mark == "}" and parts[-1:] not in ([","], ["{"]):
            raise ValueError("a value of a dictionary does not end with a semicolon")
        if mark in ("}", ")") and parts[-1:] == [","]:
            parts.pop()  # the last element of a list may have a comma too
        if mark:
            parts.append(MARKS[mark])
        elif quoted is not None or plain:
            parts.append(json.dumps(quoted if plain is None else plain))
    return json.loads("".join(parts), object_pairs_hook=once)
