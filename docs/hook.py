"""Functions that mkdocs calls: they fill in the reference pages."""

from __future__ import annotations

import sys
from pathlib import Path

from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # mkdocs loads this file by its path
    sys.path.insert(0, str(ROOT))

from docs.docgen import pages  # noqa: E402 - the lines above set its path

WIDE = (
    "reference/facts.md",
    "reference/model-types.md",
    "reference/policy.md",
)


def on_page_markdown(markdown: str, page: Page, **_options: object) -> str:
    """Fill in the generated parts of a page; pages with wide tables get the whole width."""
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["toc"]
    return pages.filled(markdown)
