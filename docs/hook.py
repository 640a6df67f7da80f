"""What mkdocs calls: fills in the reference pages and adds pages to the navigation."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # mkdocs loads this file by its path
    sys.path.insert(0, str(ROOT))

from docs.docgen import pages  # noqa: E402 - after its path is known

WIDE = ("complaints.md", "reference/facts.md", "reference/policy.md")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put pages that the navigation does not name, such as committed results, at its end."""
    folder = Path(config.docs_dir)
    named = set(names(config.nav))
    found = {
        page.relative_to(folder).as_posix(): title(page)
        for page in sorted(folder.rglob("*.md"))
    }
    rest = [{title: path} for path, title in found.items() if path not in named]
    if rest and config.nav is not None:
        config.nav.append({"Results and more": rest})
    return config


def names(nav: object) -> Iterator[str]:
    """Yield the pages that a navigation names."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict | list):
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from names(each)


def title(page: Path) -> str:
    """Return a page's first heading, or its file's name."""
    lines = page.read_text("utf-8").splitlines()
    return next((line[2:] for line in lines if line.startswith("# ")), page.stem)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated files as if they were in docs/."""
    from mkdocs.structure.files import File

    for path, text in pages.files().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_given: object) -> str:
    """Fill in what is made from the code, and give wide tables the whole width."""
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["toc"]
    return pages.filled(markdown)
