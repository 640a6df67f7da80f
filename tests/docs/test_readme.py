from __future__ import annotations

import re

from tests.docs.conftest import ROOT
from tests.docs.test_names_in_pages import calls, wrong_part

README = (ROOT / "README.md").read_text("utf-8")
LINK = re.compile(r"\]\(([^)#\s]+)")


def test_its_links_lead_to_files():
    links = [link for link in LINK.findall(README) if "://" not in link]
    assert links
    for link in links:
        assert (ROOT / link).is_file(), link


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
