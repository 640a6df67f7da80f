"""Puts files into Model/, each hashed once: taken over from the earlier package, or copied.

Copies share their blocks with the original where the file system can. Hard links there are
only to the earlier version of the same package, which is deleted a moment later.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from h2o_pack.bundling.manifest import BundledFile
from h2o_pack.files.digests import copy, in_parallel, sha256_of

TAKEN_OVER = ".safetensors"  # what is large; a copy of the others takes no time


@dataclass(frozen=True)
class Placing:
    """A file that goes to `path` in Model/.

    size: in bytes. source: the real file. sha256: of the source, "" where it is not known.
    earlier: the same file of the package that this one replaces, if there is one.
    """

    path: str
    size: int
    source: Path
    sha256: str = ""
    earlier: Path | None = None

    @property
    def may_be_taken_over(self) -> bool:
        """Whether the earlier file is the package's alone and may have the same content."""
        if self.earlier is None or not self.path.endswith(TAKEN_OVER):
            return False
        try:
            found = self.earlier.lstat()
        except OSError:
            return False
        return (
            stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_size == self.size
        )


def place_all(
    files: Iterable[Placing], target: Path, advance: Callable[[int], None]
) -> tuple[BundledFile, ...]:
    """Put the files below `target`; return what they are, in order.

    advance: told the bytes of each piece, by one thread at a time.
    """

    def put(file: Placing, told: Callable[[int], None], stop: threading.Event) -> BundledFile:
        place = target / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        digest = taken_over(file, place, told, stop) or copy(file.source, place, told, stop)
        return BundledFile(file.path, place.stat().st_size, digest)

    return tuple(in_parallel(put, files, advance))


def taken_over(
    file: Placing, target: Path, advance: Callable[[int], None], stop: threading.Event
) -> str:
    """Link the earlier package's file if it is the same; return its sha256, or "".

    It is read, so that damage is found.
    """
    if file.earlier is None or not file.may_be_taken_over:
        return ""
    wanted = file.sha256 or sha256_of(file.source, stop=stop)
    if sha256_of(file.earlier, stop=stop) != wanted:
        return ""
    try:
        os.link(file.earlier, target)
    except OSError:
        return ""
    advance(file.size)
    return wanted
