"""Puts the model into a package, with a manifest of every file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from h2o_pack.errors import ExitCode, UserError

if TYPE_CHECKING:
    from pathlib import Path

    from h2o_pack.models.model import Model

FOLDER = "Model"
MANIFEST = "manifest.json"
FORMAT = 1
CHUNK = 1 << 20


@dataclass(frozen=True)
class BundledFile:
    """A file of Model/: size in bytes and hexadecimal sha256."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What Model/ holds."""

    model: str
    files: tuple[BundledFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)

    def to_json(self) -> str:
        """Write the manifest as the text of its file."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n"


def bundle(model: Model, package: Path) -> Manifest:
    """Fill `package`/Model with the files that inference needs."""
    if model.folder is None:
        raise UserError(
            f"{model.id} has not been downloaded",
            remedy=f"Run `hf download {model.id}` first.",
            code=ExitCode.MODEL,
        )
    folder = package / FOLDER
    folder.mkdir()
    files = []
    for file in model.files:
        source = (model.folder / file.path).resolve(strict=True)
        place(source, folder / file.path)
        files.append(measure(folder / file.path))
    manifest = Manifest(model.id, tuple(files))
    (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8", newline="\n")
    return manifest


def place(source: Path, target: Path) -> None:
    """Put a file in place: weights as hard links where possible, others as copies.

    Weights are never edited and are large; a configuration in a package may be
    edited, which must not change the model that it came from.
    """
    if target.suffix == ".safetensors":
        try:
            os.link(source, target)
        except OSError:
            pass
        else:
            return
    shutil.copyfile(source, target)


def measure(path: Path) -> BundledFile:
    """Return a file's size and sha256."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return BundledFile(path.name, path.stat().st_size, digest.hexdigest())
