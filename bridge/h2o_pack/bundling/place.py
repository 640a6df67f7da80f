"""Puts files into Model/: linked where possible, else copied, each hashed once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from h2o_pack.bundling.manifest import BundledFile
from h2o_pack.files.digests import copy, in_parallel, sha256_of

LINKED = ".safetensors"  # weights are large and never edited; a configuration may be


def place_all(
    sources: Mapping[str, Path],
    target: Path,
    known: Mapping[str, str],
    advance: Callable[[int], None],
) -> tuple[BundledFile, ...]:
    """Put each {path: real file} below `target`; return what they are, in order.

    known: sha256 of files that were hashed a moment ago, while they were fetched.
    advance: told the bytes of each piece, by one thread at a time.
    """

    def put(
        file: tuple[str, Path], told: Callable[[int], None], stop: threading.Event
    ) -> BundledFile:
        path, source = file
        return place(path, source, target / path, known, told, stop)

    return tuple(in_parallel(put, sources.items(), advance))


def place(
    path: str,
    source: Path,
    target: Path,
    known: Mapping[str, str],
    advance: Callable[[int], None],
    stop: threading.Event,
) -> BundledFile:
    """Put one file in place."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not (path.endswith(LINKED) and linked(source, target)):
        digest = copy(source, target, advance, stop)
    elif path in known:
        digest = known[path]
        advance(target.stat().st_size)
    else:
        digest = sha256_of(target, advance, stop)
    return BundledFile(path, target.stat().st_size, digest)


def linked(source: Path, target: Path) -> bool:
    """Make a hard link, unless the file systems or their owners do not allow it."""
    try:
        os.link(source, target)
    except OSError:
        return False
    return True
