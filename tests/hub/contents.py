"""The content of a file on the hub: bytes in memory or a file on disk, sparse ones too."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

CHUNK = 1 << 20


@dataclass(frozen=True)
class Content:
    """What a path of a repository holds, and what the listing says of it.

    lfs: kept outside git, so given by the CDN and listed with its sha256.
    says_size, says_sha256: what the hub claims instead of the truth, in bytes and
    hexadecimal. `known_sha256` saves hashing a file whose hash is known.
    """

    data: bytes = b""
    file: Path | None = None
    lfs: bool = False
    says_size: int | None = None
    says_sha256: str | None = None
    known_sha256: str | None = field(default=None, compare=False)

    @cached_property
    def real_size(self) -> int:
        """Bytes that are sent."""
        return len(self.data) if self.file is None else self.file.stat().st_size

    @property
    def size(self) -> int:
        """Bytes by the listing and the headers."""
        return self.real_size if self.says_size is None else self.says_size

    @cached_property
    def sha256(self) -> str:
        """The sha256 by the listing and the headers."""
        return self.says_sha256 or self.known_sha256 or self.digest("sha256")

    @cached_property
    def blob_id(self) -> str:
        """The object's id in git: of the content, or of the pointer that LFS puts there."""
        if self.lfs:
            return git_blob(self.pointer)
        return self.digest("sha1", f"blob {self.real_size}\0".encode())

    @property
    def pointer(self) -> bytes:
        """The text that git keeps in place of a large file."""
        version = "version https://git-lfs.github.com/spec/v1"
        return f"{version}\noid sha256:{self.sha256}\nsize {self.size}\n".encode()

    @property
    def etag(self) -> str:
        """What the hub's client names the blob by."""
        return self.sha256 if self.lfs else self.blob_id

    def digest(self, algorithm: str, before: bytes = b"") -> str:
        """Hash `before` and the real content."""
        digest = hashlib.new(algorithm, before)
        with self.open() as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
        return digest.hexdigest()

    def open(self) -> BinaryIO:
        """Return the real content as a binary file with a descriptor."""
        if self.file is not None:
            return self.file.open("rb")
        anonymous = os.memfd_create("content") if hasattr(os, "memfd_create") else -1
        if anonymous < 0:
            import tempfile

            file = tempfile.TemporaryFile()  # noqa: SIM115 - given to the caller
        else:
            file = os.fdopen(anonymous, "w+b")
        file.write(self.data)
        file.flush()
        file.seek(0)
        return file  # type: ignore[return-value]


def git_blob(data: bytes) -> str:
    """Return the id that git gives a file of this content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # noqa: S324 - git's


def large(data: bytes, **claims: object) -> Content:
    """Make a file that the hub keeps in LFS."""
    return Content(data, lfs=True, **claims)  # type: ignore[arg-type]


def sparse(path: Path, size: int, head: bytes = b"") -> Content:
    """Make a file of `size` bytes, zeros after `head`, that takes no room on the disk."""
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)
    return Content(file=path, lfs=True)
