"""Puts files into Model/: linked where possible, else copied, each hashed once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from h2o_pack.bundling.manifest import BundledFile
from h2o_pack.files.digests import copy, sha256_of

WORKERS = 4  # files at once; each holds two pieces of digests.CHUNK bytes
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
    stop, lock = threading.Event(), threading.Lock()

    def told(amount: int) -> None:
        with lock:
            advance(amount)

    with ThreadPoolExecutor(min(WORKERS, os.cpu_count() or 1)) as workers:
        try:
            placed: list[Future[BundledFile]] = [
                workers.submit(place, path, source, target / path, known, told, stop)
                for path, source in sources.items()
            ]
            return tuple(each.result() for each in placed)
        except BaseException:
            stop.set()
            raise


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
