"""The site: its pages, their navigation, and what they load."""

import os
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from posixpath import normpath

import pytest
import yaml

import h2o_py
from h2o_py import fast
from tests.processes import ROOT, python

pytestmark = pytest.mark.nightly("test_pages.py, of their sources")
LOADING_LINKS = {"stylesheet", "icon", "preload", "preconnect", "modulepreload", "manifest"}


@dataclass
class Page:
    """A page: links of the navigation, and what it loads."""

    path: str
    navigation: list[str] = field(default_factory=list)
    resources: list[str] = field(default_factory=list)
    classes: set[str] = field(default_factory=set)
    styles: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Site:
    """A built site."""

    folder: Path
    pages: dict[str, Page]

    def files(self, pattern: str) -> dict[str, str]:
        """Return the text of files by their path."""
        return {
            path.relative_to(self.folder).as_posix(): path.read_text("utf-8")
            for path in sorted(self.folder.rglob(pattern))
        }


class Reader(HTMLParser):
    def __init__(self, page: Page) -> None:
        super().__init__()
        self.page = page
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.open.append(tag)
        page = self.page
        page.classes |= set(values.get("class", "").split())
        page.styles += [values["style"]] if "style" in values else []
        if tag == "a" and "href" in values and "nav" in self.open:
            page.navigation.append(values["href"].partition("#")[0])
        if tag == "link" and LOADING_LINKS & set(values.get("rel", "").split()):
            page.resources.append(values.get("href", ""))
        if tag != "a" and "src" in values:
            page.resources.append(values["src"])
        if "srcset" in values:
            page.resources += [word.split()[0] for word in values["srcset"].split(",")]

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "style" in self.open[-1:]:
            self.page.styles.append(data)


def read_site(folder: Path) -> Site:
    """Read every page below a folder."""
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        page = Page(path.relative_to(folder).as_posix())
        Reader(page).feed(path.read_text("utf-8"))
        pages[page.path] = page
    return Site(folder, pages)


EXTERNAL = re.compile(r"^(?:[a-z][a-z+.-]*:)?//", re.IGNORECASE)
CSS_ADDRESS = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Build the site; any warning of mkdocs is an error."""
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = ("-m", "mkdocs", "build", "--strict", "--site-dir", folder)
    process = python(*command, env=environment)
    assert process.returncode == 0, process.stdout + process.stderr
    return read_site(folder)


def test_every_page_can_be_reached_from_the_navigation(site):
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    assert settings["strict"] is True
    reached = {
        normpath((PurePosixPath(page.path).parent / link).as_posix())
        for page in site.pages.values()
        for link in page.navigation
    }
    assert set(site.pages) - {"404.html"} <= reached


def test_no_page_loads_anything_from_elsewhere(site):
    for page in site.pages.values():
        assert page.resources
        for address in page.resources:
            assert not EXTERNAL.match(address), f"{page.path} loads {address}"
        for style in page.styles:
            assert not external_addresses(style), page.path
        # The theme's script fetches these where a page asks for them.
        assert not page.classes & {"mermaid", "md-source"}, page.path
    for path, text in site.files("*.css").items():
        assert not external_addresses(text), path


def external_addresses(css: str) -> list[str]:
    addresses = (first or second for first, second in CSS_ADDRESS.findall(css))
    return [address for address in addresses if EXTERNAL.match(address)]


def test_every_public_python_name_is_in_the_reference(site):
    page = (site.folder / "reference/python.html").read_text("utf-8")
    names = [
        f"h2o_py.fast.{name}"
        for name, value in vars(fast).items()
        if callable(value) and value.__module__ == fast.__name__ and not name.startswith("_")
    ]
    assert len(names) > 5
    for name in (*names, *(f"h2o_py.{name}" for name in h2o_py.__all__)):
        assert f'id="{name}"' in page, name
