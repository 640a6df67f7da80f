"""The README names commands and make targets that exist."""

from __future__ import annotations

import re

from tests.docs.conftest import ROOT
from tests.docs.test_names_in_pages import calls, wrong_part

README = (ROOT / "README.md").read_text("utf-8")


def test_its_commands_and_options_exist():
    assert calls(README)
    for call in calls(README):
        assert not wrong_part(call), f"{call!r} has {wrong_part(call)!r}"


def test_its_make_targets_exist():
    targets = re.findall(
        r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE
    )
    named = re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE)
    assert named
    assert set(named) <= set(targets)
