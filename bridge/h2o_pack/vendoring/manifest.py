"""Vendor/manifest.json: the sha256 of every file of Vendor; the lock has the manifest's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from h2o_pack.errors import UserError
from h2o_pack.files import lock
from h2o_pack.files.digests import sha256_of
from h2o_pack.files.kept import ANY, Exchanged, Move, Written
from h2o_pack.files.layout import REPLACED_FOLDER, VENDOR_FOLDER, VENDOR_MANIFEST


@dataclass(frozen=True)
class VendorManifest:
    """files: sha256 of each file by its path in Vendor."""

    files: dict[str, str]

    def to_json(self) -> str:
        """Write the manifest as the text of its file."""
        return json.dumps({"format": lock.FORMAT, "files": self.files}, indent=0) + "\n"


def record(folder: Path) -> str:
    """Write the manifest of a folder that becomes Vendor; return the manifest's sha256."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    files = {path.relative_to(folder).as_posix(): sha256_of(path) for path in found}
    text = VendorManifest(files).to_json()
    (folder / VENDOR_MANIFEST).write_text(text, encoding="utf-8", newline="\n")
    return lock.sha256(text.encode())


def read(folder: Path) -> VendorManifest:
    """Read the manifest of a Vendor folder; UserError when it is missing or damaged."""
    path = folder / VENDOR_MANIFEST
    try:
        return lock.read_record(path, VendorManifest)
    except FileNotFoundError as error:
        raise lock.damaged(path, "is missing") from error


def kept_of_vendor(previous: Path, output: Path) -> Iterator[Move]:
    """Find what moves from an earlier Vendor folder to the one in its place.

    Where no manifest says what is the user's, all of it goes to Replaced.
    """
    aside = f"../{REPLACED_FOLDER}/{VENDOR_FOLDER}"
    try:
        files = read(previous).files
    except UserError:
        everything = Exchanged(previous, output, Written({}), aside)
        for entry in sorted(previous.iterdir()):
            yield Move(entry.name, everything.aside(entry.name))
        return
    yield from Exchanged(
        previous, output, Written({**files, VENDOR_MANIFEST: ANY}), aside
    ).moves()
