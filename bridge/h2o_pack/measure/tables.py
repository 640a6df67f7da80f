"""Tables of text, for a terminal and for Markdown pages."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from h2o_pack.printing import caption

_LEAST = len("not distinguishable")


@dataclass(frozen=True)
class Table:
    """A table of figures.

    note: a text below the table. text: names of the columns that hold text; the first column
    always does.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    text: tuple[str, ...] = ()


def print_table(table: Table, console: Console) -> None:
    """Show a table at a terminal; if it is too wide, show its columns as rows."""
    rich = _rich(table)
    unlimited = console.options.update(width=sys.maxsize)
    if console.measure(rich, options=unlimited).minimum > console.width:
        rich = _rich(_turned(table))
    console.print(rich, soft_wrap=False)
    if table.note:
        caption(table.note, console, "")


def _rich(table: Table) -> RichTable:
    rich = RichTable(
        title=table.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    rich.add_column(table.header[0], overflow="fold")
    columns = list(zip(*table.rows, strict=True))[1:] or [()] * len(table.header[1:])
    for name, cells in zip(table.header[1:], columns, strict=True):
        if name in table.text:
            rich.add_column(name, overflow="fold", min_width=_LEAST)
        else:  # the words of a column's name may be on several lines, a figure may not
            widest = max(map(cell_len, [*cells, *name.split()]))
            rich.add_column(name, justify="right", width=widest)
    for row in table.rows:
        rich.add_row(*map(Text, row))
    return rich


def _turned(table: Table) -> Table:
    """Return the table with its columns as rows."""
    header, *rows = zip(table.header, *table.rows, strict=True)
    return replace(table, header=header, rows=tuple(rows))


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table; all columns but the first hold figures."""
    rule = [":--", *["--:"] * (len(header) - 1)]
    lines = [
        [re.sub(r"(?<!\\)\|", r"\|", cell) for cell in row] for row in (header, rule, *rows)
    ]
    return [f"| {' | '.join(line)} |" for line in lines]
