"""A download that may be interrupted at any byte: kept on disk, continued by the next run.

huggingface_hub 2 writes to a file of a name made up for the process and deletes it when it
stops, so each of its interrupted downloads begins anew. Here the name is the content's
hash, so what has arrived is found again and never mixed with another version.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from h2o_pack.files.digests import CHUNK

SUFFIX = ".h2o-pack.incomplete"


class Partial:
    """The file object that the hub's client writes to; hashes as it goes.

    size: bytes that have arrived. advance: told of each piece, also of those from
    an earlier run.
    """

    def __init__(self, path: Path, limit: int, advance: Callable[[int], None]) -> None:
        """Open `path`; what is longer than `limit` bytes is not of this download."""
        self.path, self.advance = path, advance
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered, so that a killed process loses no piece that it has received.
        self.file = path.open("r+b" if path.exists() else "x+b", buffering=0)
        self.digest = hashlib.sha256()
        self.size = 0
        if self.file.seek(0, os.SEEK_END) > limit:
            self.file.truncate(0)
        self.file.seek(0)
        while piece := self.file.read(CHUNK):
            self.take(piece)

    def __enter__(self) -> Partial:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.file.close()

    @property
    def sha256(self) -> str:
        """Hexadecimal sha256 of what has arrived."""
        return self.digest.hexdigest()

    def take(self, piece: bytes) -> None:
        """Count and hash a piece that is in the file."""
        self.digest.update(piece)
        self.size += len(piece)
        self.advance(len(piece))

    def write(self, piece: bytes) -> int:
        """Append a piece."""
        rest = memoryview(piece)
        while rest:
            rest = rest[self.file.write(rest) or 0 :]
        self.take(piece)
        return len(piece)

    def tell(self) -> int:
        """Return where the next piece goes."""
        return self.file.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move; only to the begin, which is where the client starts a file over."""
        return self.file.seek(offset, whence)

    def truncate(self) -> int:
        """Drop what follows; the client does so when a server ignores its range."""
        kept = self.file.truncate()
        if kept:
            raise ValueError(f"a download can only begin anew at its first byte, not at {kept}")
        self.advance(-self.size)
        self.digest, self.size = hashlib.sha256(), 0
        return kept

    def finish(self, target: Path) -> None:
        """Put the whole file in its place, through to the disk: others trust its name."""
        os.fsync(self.file.fileno())
        self.path.replace(target)
