"""Functions that mkdocs calls: they fill in the reference pages, and help tables fit."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # mkdocs loads this file by its path
    sys.path.insert(0, str(ROOT))

from docs.docgen import pages  # noqa: E402 - the lines above set its path

WIDE = (
    "reference/facts.md",
    "reference/policy.md",
)
SHORT = re.compile(r"<code>(?=[^<]{1,26}</code>)")
CELL = re.compile(r"<td([^>]*)>(.*?)</td>", re.DOTALL)
TAG = re.compile(r"<[^>]*>")
SENTENCE = 30
"""Characters of a cell from which on it needs a wide column."""


def on_page_markdown(markdown: str, page: Page, **_options: object) -> str:
    """Fill in the generated parts of a page; pages with wide tables get the whole width."""
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["toc"]
    return pages.filled(markdown)


def on_page_content(html: str, **_options: object) -> str:
    """Mark code of a few characters, and cells of a table with a sentence."""
    return CELL.sub(marked, SHORT.sub('<code class="short">', html))


def marked(cell: re.Match[str]) -> str:
    """Mark a cell with a long text, which needs a wide column."""
    is_long = len(TAG.sub("", cell[2])) > SENTENCE
    return f'<td{cell[1]} class="long">{cell[2]}</td>' if is_long else cell[0]
