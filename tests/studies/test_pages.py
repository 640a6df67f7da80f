"""The pages of finished comparisons say what the figures beside them hold."""

import pytest

from studies.pages import PAGES, RESULTS, text


@pytest.mark.parametrize("page", PAGES)
def test_a_committed_page_is_what_its_figures_say(page):
    assert (RESULTS / page).read_text(encoding="utf-8") == text(page)
