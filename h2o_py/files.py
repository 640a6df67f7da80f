"""Reads files that somebody else may have made, and replaces files as a whole."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

MOST_BYTES = 64 << 20
"""The most bytes of a file of settings, records or text."""
NOT_REGULAR = "it is not a regular file"


def check_regular(path: str | Path) -> os.stat_result:
    """Refuse what is no regular file, such as a pipe, which might never end.

    Raises:
        OSError: there is no regular file.

    """
    status = Path(path).stat()
    if not stat.S_ISREG(status.st_mode):
        code = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(code, NOT_REGULAR, str(path))
    return status


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read its bytes; OSError if it is something else, `strerror` says why.

    Pipes, devices and sockets may never end, so they are opened only below /dev, where a shell
    passes them.
    """
    if path.is_relative_to("/dev"):
        return path.open("rb")
    # Without O_NONBLOCK, a pipe blocks until somebody writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, NOT_REGULAR, str(path))


def read_file(path: Path, most: int = MOST_BYTES) -> bytes:
    """Read a file of at most `most` bytes; see `open_regular`.

    Raises OSError: the file cannot be read, or is too large; `strerror` says why.
    """
    with open_regular(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB", str(path))
    return data


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write, which replaces `path` when it is complete and on the medium.

    The file is new, only its owner can read it, and it lies beside `path` as
    ".NAME.UUID.new". What an earlier process left there is removed, but not what another one
    writes now.

    Raises:
        OSError: the file cannot be written. What was at `path` is there still.

    """
    _remove_leftovers(path)
    file, new = _locked_file(path)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
    sync_folder(path.parent)


def _locked_file(path: Path) -> tuple[BinaryIO, Path]:
    """Make a new file beside `path` whose lock says that a process writes it."""
    while True:
        new = path.with_name(f".{path.name}.{uuid.uuid4()}.new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return os.fdopen(descriptor, "wb"), new
        os.close(descriptor)  # another process removed it before it had its lock


_UUID = "[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}"


def _remove_leftovers(path: Path) -> None:
    """Remove the files of `replacing` whose process ended before it renamed them."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.{_UUID}\.new")
    with suppress(OSError):
        leftovers = [other for other in path.parent.iterdir() if pattern.fullmatch(other.name)]
        for other in leftovers:
            with suppress(OSError), open(other, "rb", opener=_without_waiting) as file:
                check_regular(other)
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                other.unlink()


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the medium; not every file system does."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
