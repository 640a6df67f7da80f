"""manifest.json: every file of Model/ with its size and sha256; the app checks it too."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from h2o_pack.errors import UserError
from h2o_pack.files.layout import MODEL_FOLDER, MODEL_MANIFEST
from h2o_pack.files.lock import FORMAT, damaged, read_record
from h2o_pack.results import Count

SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class BundledFile:
    """A file of Model/: its path there, size in bytes and hexadecimal sha256."""

    path: str
    size: Count
    sha256: Annotated[str, Meta(pattern=f"^{SHA256.pattern}$")]


@dataclass(frozen=True)
class Manifest:
    """What Model/ holds. commit: of the hub's repository, "" for a local folder."""

    model: str
    files: tuple[BundledFile, ...]
    commit: str = ""

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)

    def to_json(self) -> str:
        """Write the manifest as the text of its file."""
        document = {"format": FORMAT, "model": self.model, "commit": self.commit}
        return json.dumps({**document, "files": list(map(asdict, self.files))}, indent=2) + "\n"


def read(package: Path) -> Manifest:
    """Read a package's manifest; UserError when it is missing, damaged or hostile."""
    from h2o_pack.bundling.names import check_paths  # needs this module's

    path = package / MODEL_FOLDER / MODEL_MANIFEST
    try:
        manifest = read_record(path, Manifest)
    except FileNotFoundError as error:
        raise damaged(path, "is missing") from error
    try:
        check_paths(file.path for file in manifest.files)
    except UserError as error:
        raise damaged(path, f"cannot be used: {error.what}") from error
    return manifest
