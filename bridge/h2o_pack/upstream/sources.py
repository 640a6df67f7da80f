"""The files of a folder of clones that a package's Vendor gets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from h2o_pack.vendoring.edits import CopiedPath
from h2o_pack.vendoring.vendor import unwanted


def copied_files(clone: Path, copy: CopiedPath) -> Iterator[Path]:
    """Yield every file that vendoring copies of a clone; what is not there is passed over."""
    for name in copy.paths:
        root = clone / name
        if root.is_file():
            yield root
        for parent, folders, files in os.walk(root):
            without = unwanted(copy, parent, [*folders, *files])
            folders[:] = sorted(set(folders) - without)
            yield from (Path(parent, each) for each in sorted(set(files) - without))
