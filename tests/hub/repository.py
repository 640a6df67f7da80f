"""A model repository as the hub has it: its commits, and the content of files."""

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

CHUNK = 1 << 20


@dataclass(frozen=True)
class Content:
    """What a path of a repository holds, and what the listing says of it.

    lfs: kept outside git, so given by the CDN and listed with its sha256.
    says_size: what the hub claims instead of the truth, in bytes. `known_sha256` saves
    hashing a file whose hash is known.
    """

    data: bytes = b""
    file: Path | None = None
    lfs: bool = False
    says_size: int | None = None
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
        return self.known_sha256 or self.digest("sha256")

    @cached_property
    def blob_id(self) -> str:
        """The object's id in git: of the content, or of the pointer that LFS puts there."""
        blob = Content(self.pointer) if self.lfs else self
        return blob.digest("sha1", b"blob %d\0" % blob.real_size)

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
        """Return the real content as a binary file."""
        return io.BytesIO(self.data) if self.file is None else self.file.open("rb")


def large(data: bytes, **claims: object) -> Content:
    """Make a file that the hub keeps in LFS."""
    return Content(data, lfs=True, **claims)  # type: ignore[arg-type]


def sparse(path: Path, size: int, head: bytes = b"") -> Content:
    """Make a file of `size` bytes, zeros after `head`, that takes no room on the disk."""
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)
    return Content(file=path, lfs=True)


LARGE = (".safetensors", ".bin", ".gguf", "tokenizer.json", "tokenizer.model")


@dataclass
class Repository:
    """Commits by id, each {path: content}, and branches and tags by name.

    gated: reading a file needs `token`, its listing does not. private: all needs it.
    moved_to: the id of the repository that it is called now.
    """

    id: str
    commits: dict[str, dict[str, Content]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    gated: bool = False
    private: bool = False
    token: str = ""
    moved_to: str = ""

    def commit(self, files: Mapping[str, Content | bytes | str], branch: str = "main") -> str:
        """Make `files` the whole content of a branch; return the commit's id, 40 digits."""
        contents = {path: as_content(path, file) for path, file in files.items()}
        text = "".join(f"{path}\0{file.etag}\n" for path, file in sorted(contents.items()))
        number = str(len(self.commits))
        digest = hashlib.sha1(f"{self.id}\0{number}\0{text}".encode("utf-8", "replace"))  # noqa: S324 - git's
        self.commits[digest.hexdigest()] = contents
        self.refs[branch] = digest.hexdigest()
        return digest.hexdigest()

    def resolve(self, revision: str) -> str:
        """Return the commit that a branch, a tag or a commit's id names, or nothing."""
        return self.refs.get(revision, revision if revision in self.commits else "")


def as_content(path: str, file: Content | bytes | str) -> Content:
    """Return a file as Content; its name decides whether it is in LFS."""
    if isinstance(file, Content):
        return file
    data = file.encode() if isinstance(file, str) else file
    return Content(data, lfs=path.endswith(LARGE))
