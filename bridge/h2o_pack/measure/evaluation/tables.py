"""Reports for people at a terminal."""

# ruff: noqa: PLC0415 - rich is imported where something is shown

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from h2o_pack.measure.evaluation import page, paper

if TYPE_CHECKING:
    from rich.console import Console


_LEAST = len("not distinguishable")


def print_report(report: dict[str, Any], console: Console) -> None:
    """Show every table of a report, the means without their intervals."""
    for experiment in report["experiments"]:
        for group in experiment["groups"]:
            header, rows = page.compact_rows(group)
            _print(f"{experiment['title']}: {group['title'].lower()}", header, rows, console)
    for title, header, rows in paper.beside(report):
        _print(f"{title} (published / ours)", header, rows, console)
    console.print(page.origin(report), markup=False)


def _print(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], console: Console
) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    last = len(header) - 1
    for i, name in enumerate(header):
        figures = i > 0 and (i < last or name != page.AGAINST)
        table.add_column(
            name,
            justify="right" if figures else "left",
            no_wrap=figures,
            min_width=None if figures else _LEAST,
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table, soft_wrap=False)
