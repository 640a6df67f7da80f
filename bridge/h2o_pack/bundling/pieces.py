"""Digests of the pieces in which an app fetches its model."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from h2o_pack.bundling.manifest import BundledFile, Manifest, write
from h2o_pack.files.digests import Stopped, in_parallel
from h2o_pack.files.layout import MODEL_FOLDER
from h2o_pack.progress import ProgressReporter

PIECE_SIZE = 16 << 20
"""Bytes. What a phone fetches again when it is interrupted; a request takes far longer than
its way there and back."""


def add_pieces(package: Path, bundled: Manifest, say: ProgressReporter) -> Manifest:
    """Write the digests of all files' pieces into a package's manifest, and return it."""
    folder = package / MODEL_FOLDER

    def with_pieces(
        file: BundledFile, told: Callable[[int], None], stop: threading.Event
    ) -> BundledFile:
        found = tuple(digests(folder / file.path, PIECE_SIZE, told, stop))
        return replace(file, pieces=found)

    with say.bar("digesting pieces", bundled.size) as advance:
        files = tuple(in_parallel(with_pieces, bundled.files, advance))
    manifest = replace(bundled, files=files, piece_size=PIECE_SIZE)
    write(package, manifest)
    return manifest


def digests(
    path: Path, size: int, advance: Callable[[int], None], stop: threading.Event
) -> Iterator[str]:
    """Yield the hexadecimal sha256 of each piece of a file.

    size: of a piece, in bytes. advance: told the bytes of each. stop: ends the work with
    Stopped when set.
    """
    with path.open("rb") as file:
        while piece := file.read(size):
            if stop.is_set():
                raise Stopped
            yield hashlib.sha256(piece).hexdigest()
            advance(len(piece))
