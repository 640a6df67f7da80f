"""Markdown text: tables, code blocks, and escaped plain text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MARK = re.compile(r"([*_>\[\]|])")
CODE = re.compile(r"(`+[^`]+`+)")
PIPE = re.compile(r"(?<!\\)\|")
INDENT = "    "


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a table; cells are Markdown; `|` is escaped and line ends become spaces."""
    lines = [head, ["---"] * len(head), *rows]
    cells = ([PIPE.sub(r"\|", " ".join(str(cell).split())) for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def fence(text: str, language: str = "text") -> str:
    """Write a block of code."""
    marks = "```" if "```" not in text else "````"
    return f"{marks}{language}\n{text.strip()}\n{marks}"


def code(text: str) -> str:
    """Write text as code in a line."""
    return f"`{text}`" if "`" not in text else f"`` {text} ``"


def plain(text: str) -> str:
    """Escape characters of Markdown's emphasis and links, and of HTML, outside of code.

    Indented lines are code blocks and do not change.
    """
    lines = text.splitlines()
    return "\n".join(line if line.startswith(INDENT) else plain_line(line) for line in lines)


def plain_line(line: str) -> str:
    """Escape a line, except text between backticks."""
    pieces = CODE.split(line)
    return "".join(
        piece if index % 2 else MARK.sub(r"\\\1", piece).replace("<", "&lt;")
        for index, piece in enumerate(pieces)
    )


def yes(value: object) -> str:
    """Write a truth value as a word."""
    return "yes" if value else "no"


def replaced(page: str, name: str, between: str) -> str:
    """Return a page with another text between `<!-- NAME: begin -->` and `<!-- NAME: end -->`.

    Raises:
        ValueError: the page lacks the marks.

    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    before, first, rest = page.partition(begin)
    _, last, after = rest.partition(end)
    if not (first and last):
        raise ValueError(f"the page lacks the marks {begin.strip()} and {end.strip()}")
    return f"{before}{begin}\n{between.strip()}\n\n{end}{after}"
