"""The README and the guide for contributors name commands, targets and files that exist."""

from __future__ import annotations

import re

import pytest

from tests.docs.conftest import ROOT
from tests.docs.test_names_in_pages import CODE, FILE, calls, wrong_part

PAGES = {name: (ROOT / name).read_text("utf-8") for name in ("README.md", "CONTRIBUTING.md")}


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_exist(page):
    assert calls(PAGES[page])
    for call in calls(PAGES[page]):
        assert not wrong_part(call), f"{call!r} has {wrong_part(call)!r}"


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_exist(page):
    targets = re.findall(
        r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE
    )
    named = re.findall(r"(?:^|`)make ([a-z-]+)", PAGES[page], re.MULTILINE)
    assert named
    assert set(named) <= set(targets)


def test_files_exist():
    named = [
        name for code in CODE.findall(PAGES["CONTRIBUTING.md"]) for name in FILE.findall(code)
    ]
    assert len(named) > 10
    for name in named:
        assert (ROOT / name).exists(), name
