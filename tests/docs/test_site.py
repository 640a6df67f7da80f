"""The site: its pages, their navigation, and what they load."""

import os
import re
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


class Page(HTMLParser):
    """A page: links of its navigation, what it loads, its classes and its styles."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__()
        self.path = path
        self.navigation: list[str] = []
        self.resources: list[str] = []
        self.classes: set[str] = set()
        self.styles: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.open.append(tag)
        self.classes |= set(values.get("class", "").split())
        self.styles += [values["style"]] if "style" in values else []
        if tag == "a" and "href" in values and "nav" in self.open:
            self.navigation.append(values["href"].partition("#")[0])
        if tag == "link" and LOADING_LINKS & set(values.get("rel", "").split()):
            self.resources.append(values.get("href", ""))
        if tag != "a" and "src" in values:
            self.resources.append(values["src"])
        if "srcset" in values:
            self.resources += [word.split()[0] for word in values["srcset"].split(",")]

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "style" in self.open[-1:]:
            self.styles.append(data)


EXTERNAL = re.compile(r"^(?:[a-z][a-z+.-]*:)?//", re.IGNORECASE)
CSS_ADDRESS = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; any warning of mkdocs is an error."""
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = ("-m", "mkdocs", "build", "--strict", "--site-dir", folder)
    process = python(*command, env=environment)
    assert process.returncode == 0, process.stdout + process.stderr
    return folder


@pytest.fixture(scope="session")
def pages(site: Path) -> list[Page]:
    return [
        Page(path.relative_to(site).as_posix(), path.read_text("utf-8"))
        for path in sorted(site.rglob("*.html"))
    ]


def test_every_page_can_be_reached_from_the_navigation(pages):
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    assert settings["strict"] is True
    reached = {
        normpath((PurePosixPath(page.path).parent / link).as_posix())
        for page in pages
        for link in page.navigation
    }
    assert {page.path for page in pages} - {"404.html"} <= reached


def test_no_program_is_published(site):
    assert not [path for path in site.rglob("*") if path.suffix in (".py", ".pyc")]


def test_no_page_loads_anything_from_elsewhere(site, pages):
    for page in pages:
        assert page.resources
        for address in page.resources:
            assert not EXTERNAL.match(address), f"{page.path} loads {address}"
        for style in page.styles:
            assert not external_addresses(style), page.path
        # The theme's script fetches these where a page asks for them.
        assert not page.classes & {"mermaid", "md-source"}, page.path
    for path in site.rglob("*.css"):
        assert not external_addresses(path.read_text("utf-8")), path


def external_addresses(css: str) -> list[str]:
    addresses = (first or second for first, second in CSS_ADDRESS.findall(css))
    return [address for address in addresses if EXTERNAL.match(address)]


def test_every_public_python_name_is_in_the_reference(site):
    page = (site / "reference/python.html").read_text("utf-8")
    names = [
        f"h2o_py.fast.{name}"
        for name, value in vars(fast).items()
        if callable(value) and value.__module__ == fast.__name__ and not name.startswith("_")
    ]
    assert len(names) > 5
    for name in (*names, *(f"h2o_py.{name}" for name in h2o_py.__all__)):
        assert f'id="{name}"' in page, name
