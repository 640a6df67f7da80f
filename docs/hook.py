"""What mkdocs calls: adds the generated pages, which are nowhere committed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parent.parent


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add each generated page as if it lay in docs/."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - only mkdocs has it

    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from docs.docgen.pages import generated  # noqa: PLC0415 - after its path is known

    for path, text in generated().items():
        files.append(File.generated(config, path, content=text))
    return files
