"""The README's table of answers is what the real chat model's results say."""

from __future__ import annotations

from docs.docgen import answers
from docs.docgen.markdown import replaced


def test_the_table_shows_what_was_measured():
    page = answers.PAGE.read_text("utf-8")
    shown = answers.answers(answers.cells())
    assert replaced(page, answers.MARK, shown) == page, "run python -m docs.docgen.answers"
