"""Finds declarations in Swift source files.

This is no parser: it knows comments, strings and brackets, so that it can cut declarations
that stand at the top level of a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

OPENING, CLOSING = "([{", ")]}"
DECLARATION = re.compile(
    r"^(?:@\w+(?:\([^)]*\))?\s+)*"
    r"(?P<access>(?:(?:public|private|fileprivate|internal|package|open|final)\s+)*)"
    r"(?P<kind>struct|enum|protocol|extension|class|actor|func|let|var|typealias)\s+"
    r"(?P<name>[\w.]+)(?P<rest>[^\n]*)",
    re.MULTILINE,
)
WITHOUT_BODY = ("let", "var", "typealias")


@dataclass(frozen=True)
class Declaration:
    """A declaration at the top level of a file.

    kind: its keyword, such as "struct". is_private: whether only its own file can name it.
    conforms: the text after the name up to the body. text: the whole declaration.
    """

    name: str
    kind: str
    is_private: bool
    conforms: str
    text: str


def declarations(source: str) -> Iterator[Declaration]:
    """Yield the declarations at the top level of a file."""
    blank = without_text(source)
    depths = depth_by_character(blank)
    for match in DECLARATION.finditer(blank):
        if depths[match.start()]:
            continue
        kind = match["kind"]
        end = line_end(blank, depths, match.end("name"))
        if kind not in WITHOUT_BODY:
            body = blank.find("{", match.end("name"))
            end = closing(blank, body) + 1 if body >= 0 else end
        yield Declaration(
            name=match["name"],
            kind=kind,
            is_private="private" in match["access"].split(),
            conforms=match["rest"].split("{")[0],
            text=source[match.start() : end],
        )


def without_text(source: str) -> str:
    """Return a source of the same length with spaces for comments and texts in quotes."""
    result = list(source)

    def erase(start: int, end: int) -> int:
        for place in range(start, min(end, len(source))):
            if source[place] != "\n":
                result[place] = " "
        return end

    place = 0
    while place < len(source):
        if source.startswith("//", place):
            end = source.find("\n", place)
            place = erase(place, len(source) if end < 0 else end)
        elif source.startswith("/*", place):
            place = erase(place, end_of_comment(source, place))
        elif source[place] in '"#' and re.match(r'#*"', source[place:]):
            place = erase(place, end_of_string(source, place))
        else:
            place += 1
    return "".join(result)


def end_of_comment(source: str, start: int) -> int:
    """Return the position after a comment that starts with /*; Swift nests comments."""
    depth = 0
    for match in re.finditer(r"/\*|\*/", source[start:]):
        depth += 1 if match[0] == "/*" else -1
        if not depth:
            return start + match.end()
    return len(source)


def end_of_string(source: str, start: int) -> int:
    """Return the position after a string; it may contain expressions with other strings."""
    opening = re.match(r'(#*)("""|")', source[start:])
    assert opening is not None  # noqa: S101  the caller has found it
    hashes, quotes = opening[1], opening[2]
    place = start + opening.end()
    while place < len(source):
        if source.startswith(f"\\{hashes}(", place):
            place = end_of_expression(source, place + len(hashes) + 2)
        elif source.startswith(f"\\{hashes}", place):
            place += len(hashes) + 2
        elif source.startswith(quotes + hashes, place):
            return place + len(quotes + hashes)
        else:
            place += 1
    return len(source)


def end_of_expression(source: str, start: int) -> int:
    """Return the position after the bracket that ends an expression in a string."""
    depth, place = 1, start
    while place < len(source) and depth:
        if source[place] == '"':
            place = end_of_string(source, place)
            continue
        depth += (source[place] == "(") - (source[place] == ")")
        place += 1
    return place


def depth_by_character(blank: str) -> list[int]:
    """Return the number of open brackets before each character."""
    depths, depth = [], 0
    for character in blank:
        depths.append(depth)
        depth += (character in OPENING) - (character in CLOSING)
    return [*depths, depth]


def closing(blank: str, start: int) -> int:
    """Return the position of the bracket that closes the one at `start`."""
    depth = 0
    for place in range(start, len(blank)):
        depth += (blank[place] in OPENING) - (blank[place] in CLOSING)
        if not depth:
            return place
    return len(blank)


def line_end(blank: str, depths: list[int], start: int) -> int:
    """Return the end of the line on which no bracket of a declaration is open any more."""
    end = blank.find("\n", start)
    while end >= 0 and depths[end]:
        end = blank.find("\n", end + 1)
    return len(blank) if end < 0 else end
