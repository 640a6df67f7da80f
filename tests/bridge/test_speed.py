"""The program that measures how quick the commands are."""

from __future__ import annotations

from h2o_pack.measure.machine import describe_busy

from . import speed


def test_each_command_is_measured_and_its_row_replaces_the_one_of_the_page():
    table = speed.to_markdown(describe_busy(), speed.measure(runs=1))
    assert all(f"| `{case.name}` |" in table for case in speed.CASES)
    page = f"before\n{speed.BEGIN}old\n{speed.END}after\n"
    assert speed.renewed(page, table) == f"before\n{speed.BEGIN}{table}{speed.END}after\n"
