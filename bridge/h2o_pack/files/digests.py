"""Reads files once, in pieces: hashed, or copied and hashed, in constant memory."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from h2o_pack.files.clone import clone

CHUNK = 4 << 20  # bytes; large enough that the system's calls do not count
WORKERS = 4  # files at once; each holds two pieces
GIT_ID = re.compile(r"[0-9a-f]{40}")
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


class Stopped(Exception):  # noqa: N818 - not an error: somebody asked for it
    """The work was asked to end early."""


def in_parallel(
    work: Callable[[_Item, Callable[[int], None], threading.Event], _Found],
    items: Iterable[_Item],
    advance: Callable[[int], None],
) -> list[_Found]:
    """Do the work of some files at once; return what it gave, in order.

    work: gets an item, what to tell the bytes of each piece, and what is set when another
    item failed. advance: told the bytes, by one thread at a time.
    """
    stop, lock = threading.Event(), threading.Lock()

    def told(amount: int) -> None:
        with lock:
            advance(amount)

    with ThreadPoolExecutor(min(WORKERS, os.cpu_count() or 1)) as workers:
        try:
            return list(workers.map(lambda item: work(item, told, stop), items))
        except BaseException:
            stop.set()
            raise


def sha256_of(
    path: Path,
    advance: Callable[[int], None] = lambda _amount: None,
    stop: threading.Event | None = None,
) -> str:
    """Return a file's sha256 as hexadecimal digits.

    advance: told the bytes of each piece. stop: ends the work with Stopped when set.
    """
    digest = hashlib.sha256()
    for piece in pieces(path, advance, stop):
        digest.update(piece)
    return digest.hexdigest()


def git_id(path: Path) -> str:
    """Return the id that git gives a file's content: a sha1 over its size and bytes."""
    head = b"blob %d\0" % path.stat().st_size
    digest = hashlib.sha1(head, usedforsecurity=False)
    for piece in pieces(path, lambda _amount: None):
        digest.update(piece)
    return digest.hexdigest()


def copy(
    source: Path, target: Path, advance: Callable[[int], None], stop: threading.Event
) -> str:
    """Copy a file to a new one, through to the disk; return its sha256.

    Shares the blocks where the file system can; otherwise each piece is hashed while it
    is written, so that the slower of both decides the speed.
    """
    if clone(source, target):
        digest = sha256_of(target, advance, stop)
        with target.open("rb+") as made:
            os.fsync(made.fileno())
        return digest
    with target.open("xb", buffering=0) as written:
        digest = copied(source, written.write, advance, stop)
        os.fsync(written.fileno())
    return digest


def copied(
    source: Path,
    write: Callable[[bytes], int | None],
    advance: Callable[[int], None],
    stop: threading.Event,
) -> str:
    """Write a file's pieces, each while it is being hashed."""
    digest = hashlib.sha256()
    pending: Future[None] | None = None
    with ThreadPoolExecutor(1) as hasher:
        for piece in pieces(source, advance, stop):
            if pending is not None:
                pending.result()
            pending = hasher.submit(digest.update, piece)
            rest = memoryview(piece)
            while rest:
                rest = rest[write(rest) or 0 :]  # type: ignore[arg-type]
    return digest.hexdigest()


def pieces(
    path: Path, advance: Callable[[int], None], stop: threading.Event | None = None
) -> Iterator[bytes]:
    """Yield a file's content piece by piece."""
    with path.open("rb", buffering=0) as file:
        while piece := file.read(CHUNK):
            if stop is not None and stop.is_set():
                raise Stopped
            yield piece
            advance(len(piece))
