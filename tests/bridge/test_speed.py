"""The program that measures how quick the commands are."""

from __future__ import annotations

from docs.docgen.markdown import replaced

from . import speed


def test_each_command_is_measured_and_its_row_has_a_place_in_the_page():
    rows = speed.measured(runs=1)
    assert all(f"| `{name}` |" in rows for name in speed.CASES)
    page = speed.PAGE.read_text("utf-8")
    assert rows in replaced(page, speed.MARK, rows)
