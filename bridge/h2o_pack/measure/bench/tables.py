"""A report for people at a terminal."""

# ruff: noqa: PLC0415 - rich is imported where it is used

from __future__ import annotations

from typing import TYPE_CHECKING

from h2o_pack.measure.bench.section import Section, machine_line, summary
from h2o_pack.measure.bench.sections import sections

if TYPE_CHECKING:
    from rich.console import Console

    from h2o_pack.measure.bench.report import Report

_STYLES = {"met": "green", "not met": "red"}


def print_report(report: Report, console: Console) -> None:
    """Show every table of a report."""
    for section in sections(report):
        print_section(section, console)
    console.print(machine_line(report), markup=False)
    console.print(summary(report), markup=False)


def print_section(section: Section, console: Console) -> None:
    """Show one table."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=section.title, title_justify="left")
    table.add_column(section.header[0], overflow="fold")
    for name in section.header[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in section.rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    console.print(table)
    if section.note:
        console.print(section.note, markup=False)
