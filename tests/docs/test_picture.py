"""The README's picture and sample are what `h2o-pack plan` prints."""

from __future__ import annotations

import pytest

from docs.docgen import picture
from docs.docgen.markdown import replaced

STALE = "run python -m docs.docgen.picture --write"


@pytest.fixture(scope="module")
def printed():
    return picture.outputs()


def test_the_picture_shows_what_the_command_prints(printed):
    drawn = picture.drawn(picture.BOUNDED, printed[picture.BOUNDED])
    words = picture.shown(drawn)
    assert len(words) > 20
    assert words == picture.shown(picture.PICTURE.read_text("utf-8")), STALE


def test_the_sample_is_what_the_command_prints(printed):
    readme = picture.README.read_text("utf-8")
    block = picture.sample(picture.UNBOUNDED, printed[picture.UNBOUNDED])
    assert replaced(readme, picture.MARK, block) == readme, STALE


def test_the_picture_loads_nothing():
    text = picture.PICTURE.read_text("utf-8")
    assert "url(http" not in text
    assert "@font-face" not in text
