"""docs/security.md: each promise names the tests that show it, and what is not one says so."""

from __future__ import annotations

import re

import pytest

from tests.docs.conftest import ROOT

PAGE = (ROOT / "docs/security.md").read_text("utf-8")
TRUSTED = "What is trusted"
TEST = re.compile(r"`(test[_A-Z]\w*)`")
DEFINED = re.compile(r"^ *(?:async )?(?:def|func) (test\w+)", re.MULTILINE)
PROMISES = [
    item.strip()
    for section in PAGE.split("\n## ")[1:]
    if not section.startswith(TRUSTED)
    for item in section.split("\n- ")[1:]
]


def defined(*patterns: tuple[str, str]) -> set[str]:
    sources = (path for folder, pattern in patterns for path in (ROOT / folder).rglob(pattern))
    return {name for path in sources for name in DEFINED.findall(path.read_text("utf-8"))}


@pytest.mark.parametrize("promise", PROMISES, ids=lambda text: text[:40])
def test_it_names_tests_that_exist_or_says_that_nothing_protects(promise):
    named = TEST.findall(promise)
    assert bool(named) != promise.startswith("Not protected: ")
    assert set(named) <= defined(("tests", "test_*.py"), ("swift_templates/Tests", "*.swift"))
    assert not named or promise.rpartition("`")[2] == "", "tests stand behind the promise"


def test_nothing_is_promised_outside_of_the_lists():
    assert len(PROMISES) > 40
    introductions = [
        text for section in PAGE.split("\n## ")[1:] for text in section.split("\n\n")[1:]
        if not text.startswith("- ")
    ]  # fmt: skip
    assert introductions == ["A model is data from somebody else."]
