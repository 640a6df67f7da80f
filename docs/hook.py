"""What mkdocs calls: adds the generated pages, which are nowhere committed, and the results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parent.parent


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of committed measurements at the end of the navigation."""
    folder = Path(config.docs_dir)
    pages = sorted((folder / "results").rglob("*.md"))
    if pages and config.nav is not None:
        found = [{title(page): page.relative_to(folder).as_posix()} for page in pages]
        config.nav.append({"Results": found})
    return config


def title(page: Path) -> str:
    """Return a page's first heading, or its file's name."""
    lines = page.read_text("utf-8").splitlines()
    return next((line[2:] for line in lines if line.startswith("# ")), page.stem)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add each generated page as if it lay in docs/."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - only mkdocs has it

    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from docs.docgen.pages import generated  # noqa: PLC0415 - after its path is known

    for path, text in generated().items():
        files.append(File.generated(config, path, content=text))
    return files
