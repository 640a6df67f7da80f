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

from h2o_pack.measure.timing import Timing

_STYLES = {"met": "green", "not met": "red"}
_LEAST = len("not distinguishable")


@dataclass(frozen=True)
class Table:
    """A table; the first column is text, the others are figures.

    text: names of other columns that hold text.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    text: tuple[str, ...] = ()


def print_table(table: Table, console: Console) -> None:
    """Show a table at a terminal; one that is too wide is turned, its columns as rows."""
    shown = _rich(table)
    unlimited = console.options.update(width=sys.maxsize)
    if console.measure(shown, options=unlimited).minimum > console.width:
        shown = _rich(_turned(table))
    console.print(shown, soft_wrap=False)
    if table.note:
        console.print(table.note, markup=False)


def _rich(table: Table) -> RichTable:
    shown = RichTable(
        title=table.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    shown.add_column(table.header[0], overflow="fold")
    columns = list(zip(*table.rows, strict=True))[1:] or [()] * len(table.header[1:])
    for name, cells in zip(table.header[1:], columns, strict=True):
        if name in table.text:
            shown.add_column(name, overflow="fold", min_width=_LEAST)
        else:  # words of the name may be on lines of their own, figures may not
            widest = max(map(cell_len, [*cells, *name.split()]))
            shown.add_column(name, justify="right", width=widest)
    for row in table.rows:
        shown.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    return shown


def _turned(table: Table) -> Table:
    """Return the table with its columns as rows."""
    header, *rows = zip(table.header, *table.rows, strict=True)
    return replace(table, header=header, rows=tuple(rows))


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, figures: bool = True
) -> list[str]:
    """Return the lines of a Markdown table; all columns but the first hold figures, or none."""
    rule = [":--"] + ["--:"] * (len(header) - 1) if figures else ["---"] * len(header)
    lines = [
        [re.sub(r"(?<!\\)\|", r"\|", cell) for cell in row] for row in (header, rule, *rows)
    ]
    return [f"| {' | '.join(line)} |" for line in lines]


def markdown_section(table: Table) -> str:
    """Return a table as a section of a Markdown page, with its title and note."""
    note = f"\n{table.note.strip()}\n" if table.note.strip() else ""
    return (
        f"## {table.title}\n\n"
        + "\n".join(markdown_table(table.header, table.rows))
        + f"\n{note}"
    )


def timing_cells(timing: Timing) -> tuple[str, str]:
    """Return a median and its quartiles, in microseconds."""
    return (
        f"{timing.median:,.1f}",
        f"{timing.first_quartile:,.1f} .. {timing.third_quartile:,.1f}",
    )
