"""Links lead somewhere where the repository is read on a forge, which knows only its files."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.processes import ROOT, ran

LINK = re.compile(r'\]\(([^)\s]+)\)|<img [^>]*src="([^"]+)"')
FENCE = re.compile(r"^ *(```+).*?^ *\1$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
THEMES = ("only-light", "only-dark")  # the site shows a picture in one theme
RAW = re.compile(r"^(?:===|!!!|\?\?\?) ", re.MULTILINE)


def tracked(*patterns: str) -> list[str]:
    # The folder may belong to someone else, as in a container.
    listing = ("ls-files", "--cached", "--others", "--exclude-standard")
    process = ran("git", "-c", "safe.directory=*", *listing, *patterns, check=True)
    return [path for path in process.stdout.splitlines() if (ROOT / path).is_file()]


PAGES = [path for path in tracked("*.md") if not path.startswith("tests/golden/")]


def without_code(path: Path) -> str:
    return CODE.sub("", FENCE.sub("", path.read_text("utf-8")))


@cache
def places(path: Path) -> frozenset[str]:
    """Return the anchors that a forge gives a page's headings."""
    text = FENCE.sub("", path.read_text("utf-8"))
    headings = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return frozenset(slug(heading) for heading in headings)


def slug(heading: str) -> str:
    """Return a heading's anchor, by the rule that GitHub and others use."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    path = ROOT / page
    for groups in LINK.findall(without_code(path)):
        link = groups[0] or groups[1]
        target, _, place = link.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = path if not target else (path.parent / target).resolve()
        assert file.exists(), f"{page} links to {link}"
        assert file.is_relative_to(ROOT), f"{page} links to {link}"
        if place and place not in THEMES:
            assert place in places(file), f"{page} links to {link}"


@pytest.mark.parametrize("page", PAGES)
def test_no_markup_that_a_forge_prints_raw(page):
    assert not RAW.search(FENCE.sub("", (ROOT / page).read_text("utf-8")))


def test_links_are_found():
    assert sum(len(LINK.findall(without_code(ROOT / page))) for page in PAGES) > 60
    assert slug("2: an option or `value`") == "2-an-option-or-value"


def test_contributing_lists_every_top_level_folder():
    folders = {path.partition("/")[0] for path in tracked() if "/" in path}
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    names = set(re.findall(r"^\| `([\w.]+)/` \|", text, re.MULTILINE))
    assert names == folders
