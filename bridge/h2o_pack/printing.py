"""What several commands print: tables of figures, and texts below them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


def plain_table(*names: str, text: Sequence[str] = ()) -> Table:
    """Return a table of figures; the first column and the columns in `text` contain text."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, collapse_padding=True, pad_edge=False)
    for name in names:
        if name == names[0] or name in text:
            table.add_column(name, overflow="fold", no_wrap=name not in text)
        else:
            table.add_column(name, justify="right", no_wrap=True)
    return table


def caption(text: str, console: Console, style: str = "dim") -> None:
    """Print a text in lines no longer than the screen, by default as below a table."""
    console.print(text, style=style, markup=False, soft_wrap=False)
