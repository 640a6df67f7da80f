"""The README's chart and table, and the memory plan's sample, are current."""

from __future__ import annotations

import pytest

from docs.docgen import answers, plan_pictures
from docs.docgen.markdown import replaced

STALE = "run make pages"


@pytest.mark.parametrize("theme", plan_pictures.PALETTES)
def test_the_chart_shows_what_the_plan_counts(theme, tmp_path):
    memory, drawn = plan_pictures.planned(), tmp_path / "chart.svg"
    plan_pictures.draw(memory, plan_pictures.PALETTES[theme], drawn)
    committed = plan_pictures.IMAGES / f"memory-{theme}.svg"
    assert drawn.read_text("utf-8") == committed.read_text("utf-8"), STALE


def test_the_bounded_cache_is_flat_and_the_full_one_crosses_the_limit():
    memory = plan_pictures.planned()
    assert len(set(memory.bounded)) == 1
    assert memory.bounded[-1] < memory.unbounded[0] < memory.limit < memory.unbounded[-1]


def test_the_sample_is_what_the_command_prints():
    page = plan_pictures.PAGE.read_text("utf-8")
    assert replaced(page, plan_pictures.MARK, plan_pictures.sample()) == page, STALE


def test_the_readmes_table_shows_what_was_measured():
    page = answers.PAGE.read_text("utf-8")
    shown = answers.answers(answers.cells())
    assert replaced(page, answers.MARK, shown) == page, STALE
