"""Reads the pages of a built site: their links, places, resources and text."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

LOADING_LINKS = {"stylesheet", "icon", "preload", "preconnect", "modulepreload", "manifest"}


@dataclass
class Page:
    """A page: places that links may lead to, links of the navigation, what it loads, and
    its main text.
    """

    path: str
    places: set[str] = field(default_factory=set)
    navigation: list[str] = field(default_factory=list)
    resources: list[str] = field(default_factory=list)
    classes: set[str] = field(default_factory=set)
    styles: list[str] = field(default_factory=list)
    text: str = ""


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
        page.places |= {values[name] for name in ("id", "name") if name in values}
        page.classes |= set(values.get("class", "").split())
        page.styles += [values["style"]] if "style" in values else []
        if tag == "a" and "href" in values and "nav" in self.open:
            page.navigation.append(values["href"].partition("#")[0])
        if tag == "link" and LOADING_LINKS & set(values.get("rel", "").split()):
            page.resources.append(values.get("href", ""))
        if tag != "a" and "src" in values:
            page.resources.append(values["src"])
        if "srcset" in values:
            page.resources += [each.split()[0] for each in values["srcset"].split(",")]

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "style" in self.open[-1:]:
            self.page.styles.append(data)
        elif "article" in self.open and "script" not in self.open:
            self.page.text += data


def read_site(folder: Path) -> Site:
    """Read every page below a folder."""
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        page = Page(path.relative_to(folder).as_posix())
        Reader(page).feed(path.read_text("utf-8"))
        pages[page.path] = page
    return Site(folder, pages)
