"""Reads files once, in pieces, to hash or to copy them, in constant memory."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from h2o_pack.progress import BarAdvance, no_progress
from h2o_py.files import open_regular

FICLONE = 0x40049409  # Linux


def clone(source: Path, target: Path) -> bool:
    """Make a file that shares the blocks of another; False if this is impossible."""
    if sys.platform == "darwin":  # clonefile(2) makes the whole file or nothing
        system, no_flags = ctypes.CDLL(None), ctypes.c_uint32(0)
        return bool(system.clonefile(os.fsencode(source), os.fsencode(target), no_flags) == 0)
    try:
        from fcntl import ioctl  # imported late: Windows does not have it

        with open_regular(source) as original, target.open("xb") as shared:
            ioctl(shared, FICLONE, original.fileno())
    except FileExistsError:
        raise
    except (ImportError, OSError):
        with suppress(FileNotFoundError):
            target.unlink()
        return False
    return True


def can_clone(source_folder: Path, folder: Path) -> bool:
    """Whether files of one folder can be cloned into another, found by trying it."""
    if source_folder.stat().st_dev != folder.stat().st_dev:
        return False
    with suppress(OSError), TemporaryDirectory(prefix=".h2o-clone-", dir=folder) as place:
        original = Path(place, "original")
        original.write_bytes(b"\0" * 4096)
        return clone(original, Path(place, "clone"))
    return False


CHUNK = 4 << 20  # bytes; so large that the number of system calls does not matter
WORKERS = 4  # files at once; each has a piece in memory
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Stopped(Exception):  # noqa: N818 - not an error: other work failed
    """The work was stopped early."""


def in_parallel(
    work: Callable[[_Item, BarAdvance], _Result], items: Iterable[_Item], advance: BarAdvance
) -> list[_Result]:
    """Work on some files at once; return the results in order.

    work: gets an item, and a function to call with the number of bytes of each piece, which
    raises Stopped once another item failed. advance: called with the number of bytes, by one
    thread at a time.
    """
    stop, lock = threading.Event(), threading.Lock()

    def advance_alone(amount: int) -> None:
        if stop.is_set():
            raise Stopped
        with lock:
            advance(amount)

    with ThreadPoolExecutor(min(WORKERS, os.cpu_count() or 1)) as workers:
        try:
            return list(workers.map(lambda item: work(item, advance_alone), items))
        except BaseException:
            stop.set()
            raise


def sha256_of(path: Path, advance: BarAdvance = no_progress) -> str:
    """Return a file's sha256; advance: called with the number of bytes of each piece."""
    digest = hashlib.sha256()
    for piece in pieces(path, advance):
        digest.update(piece)
    return digest.hexdigest()


def git_id(path: Path) -> str:
    """Return the id that git gives a file's content: a sha1 over its size and bytes."""
    head = b"blob %d\0" % path.stat().st_size
    digest = hashlib.sha1(head, usedforsecurity=False)
    for piece in pieces(path):
        digest.update(piece)
    return digest.hexdigest()


def copy(source: Path, target: Path, advance: BarAdvance = no_progress) -> str:
    """Copy a file to a new one and sync it; return its sha256.

    Shares the blocks if the file system can. advance: see `sha256_of`.
    """
    if clone(source, target):
        digest = sha256_of(target, advance)
        with target.open("rb+") as shared:
            os.fsync(shared.fileno())
        return digest
    total = hashlib.sha256()
    with target.open("xb") as output:
        for piece in pieces(source, advance):
            output.write(piece)
            total.update(piece)
        output.flush()
        os.fsync(output.fileno())
    return total.hexdigest()


def pieces(path: Path, advance: BarAdvance = no_progress, size: int = CHUNK) -> Iterator[bytes]:
    """Yield a file's content in pieces of `size` bytes; advance: see `sha256_of`."""
    with open_regular(path) as file:
        while piece := file.read(size):
            yield piece
            advance(len(piece))
