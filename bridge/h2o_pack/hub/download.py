"""Downloads a model's files into the hub's own cache with the hub's own client."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from filelock import FileLock
from huggingface_hub import (
    constants,
    get_hf_file_metadata,
    hf_hub_download,
    hf_hub_url,
    try_to_load_from_cache,
)
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.file_download import http_get, repo_folder_name
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from h2o_pack.errors import output_error
from h2o_pack.files.digests import CHUNK
from h2o_pack.files.paths import reason
from h2o_pack.files.write import in_turn
from h2o_pack.hub.client import at_most, changed_on_hub, hub_errors, other_bytes
from h2o_pack.model import Model, ModelFile
from h2o_pack.models.files import Contents
from h2o_pack.progress import ProgressReporter

SUFFIX = ".h2o-pack.incomplete"


class Partial:
    """The file object to which the hub's client writes; it hashes the bytes.

    size: bytes that have arrived. advance: called with the number of bytes of each piece, also
    of the pieces that an earlier run received.
    """

    def __init__(self, path: Path, limit: int, advance: Callable[[int], None]) -> None:
        """Open `path`; empty a file of more than `limit` bytes, which no run can complete."""
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
        """The hexadecimal sha256 of the bytes so far."""
        return self.digest.hexdigest()

    def take(self, piece: bytes) -> None:
        """Count and hash a piece that is already in the file."""
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
        """Return the position of the next piece."""
        return self.file.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position; the client only moves to the beginning, to start a file again."""
        return self.file.seek(offset, whence)

    def truncate(self) -> int:
        """Remove all bytes; the client does this at byte 0 if a server ignores its range."""
        size = self.file.truncate()
        if size:
            raise ValueError(f"a download can begin again only at byte 0, not at {size}")
        self.advance(-self.size)
        self.digest, self.size = hashlib.sha256(), 0
        return size

    def finish(self, target: Path) -> None:
        """Sync the complete file and give it its final name, which other programs trust."""
        os.fsync(self.file.fileno())
        self.path.replace(target)


EXPIRED = (401, 403)


def hub_cache() -> Path:
    """Return the folder of the hub's cache, which need not exist."""
    return Path(constants.HF_HUB_CACHE)


def cached(model: Model, path: str) -> Path | None:
    """Return the path of a file at the model's commit in the cache; None if it is missing."""
    path_in_cache = try_to_load_from_cache(model.id, path, revision=model.commit)
    return Path(path_in_cache) if isinstance(path_in_cache, str) else None


def missing(model: Model) -> tuple[ModelFile, ...]:
    """Return the model's files that the hub's cache lacks, without asking the hub."""
    return tuple(file for file in model.files if cached(model, file.path) is None)


def still_to_come(model: Model, absent: Sequence[ModelFile]) -> int:
    """Return the bytes of missing files, minus bytes that interrupted downloads have stored."""
    partials = (partial_of(model, file) for file in absent if file.sha256)
    stored = sum(partial.stat().st_size for partial in partials if partial.is_file())
    return max(0, sum(file.size for file in absent) - stored)


def partial_of(model: Model, file: ModelFile) -> Path:
    """Return the file in which a download of a file in LFS stores its bytes."""
    return repository(model) / "blobs" / f"{file.sha256}{SUFFIX}"


def download(model: Model, absent: Sequence[ModelFile], say: ProgressReporter) -> Path:
    """Download the missing files of a model at its commit; return the folder with all files."""
    if absent:
        total = sum(file.size for file in absent)
        with (
            hub_errors(model),
            say.bar(f"downloading {model.id}", total) as advance,
        ):
            for file in absent:
                if file.sha256:
                    fetch_large(model, file, advance, say)
                else:
                    fetch_small(model, file)
                    advance(file.size)
    return snapshot(model)


def snapshot(model: Model | Contents) -> Path:
    """Return the folder of the cache with the files of the model's commit."""
    return repository(model) / "snapshots" / model.commit


def repository(model: Model | Contents) -> Path:
    """Return the folder of the cache for the model's repository."""
    return hub_cache() / repo_folder_name(repo_id=model.id, repo_type="model")


def fetch_small(model: Model, file: ModelFile) -> None:
    """Let the client download a file that git stores, and link it into the snapshot."""
    with at_most(file.size):
        hf_hub_download(model.id, file.path, revision=model.commit)


def fetch_large(
    model: Model, file: ModelFile, advance: Callable[[int], None], say: ProgressReporter
) -> None:
    """Download a file in LFS, continuing an interrupted download."""
    blob = repository(model) / "blobs" / file.sha256
    # The client's own lock, so that two downloads of one blob wait for each other.
    lock = hub_cache() / ".locks" / repository(model).name / f"{file.sha256}.lock"
    for folder in (blob.parent, lock.parent):
        make_folder(folder)
    with in_turn(FileLock(lock, mode=0o664), say, f"download of {file.path}"):
        if blob.exists():
            advance(file.size)
        else:
            receive(model, file, blob, advance)
    fetch_small(model, file)  # finds the blob and links it


def receive(model: Model, file: ModelFile, blob: Path, advance: Callable[[int], None]) -> None:
    """Download a blob; if a continued download has wrong bytes, start again."""
    path = partial_of(model, file)
    for _attempt in range(2):
        with Partial(path, file.size, advance) as partial:
            continued = partial.size > 0
            transfer(model, file, partial)
            if partial.size == file.size and partial.sha256 == file.sha256:
                partial.finish(blob)
                return
            digest = partial.sha256
            advance(-partial.size)
        path.unlink()
        if not continued:
            break
    raise other_bytes(model, file, digest)


def transfer(model: Model, file: ModelFile, partial: Partial) -> None:
    """Download the missing bytes of a file.

    The hub gives a signed address for about an hour. After that, a new address is requested, as
    long as bytes arrive.
    """
    while partial.size != file.size:
        before = partial.size
        address, headers = address_of(model, file)
        try:
            get(address, headers, file, partial)
        except HfHubHTTPError as error:
            if error.response.status_code not in EXPIRED or partial.size == before:
                raise


def address_of(model: Model, file: ModelFile) -> tuple[str, dict[str, str]]:
    """Return a file's address and the headers to request it; UserError if it has changed."""
    url = hf_hub_url(model.id, file.path, revision=model.commit)
    metadata = get_hf_file_metadata(url, retry_on_errors=True)
    same = (metadata.commit_hash, metadata.etag) == (model.commit, file.sha256)
    if not same or metadata.size not in (None, file.size):
        raise changed_on_hub(model, file)
    headers = dict(build_hf_headers())
    if urlsplit(metadata.location)[:2] != urlsplit(url)[:2]:
        # The address of a CDN is signed: the CDN must not get the token.
        headers.pop("authorization", None)
    return metadata.location, headers


def get(address: str, headers: dict[str, str], file: ModelFile, partial: Partial) -> None:
    """Let the client download a file from the end of `partial` on."""
    target: Any = partial
    no_bar: Any = NoBar
    with at_most(file.size):
        http_get(
            address,
            target,
            resume_size=partial.size,
            headers=headers,
            expected_size=file.size,
            displayed_filename=file.path,
            tqdm_class=no_bar,
        )


def make_folder(folder: Path) -> None:
    """Make a folder of the cache, or raise an error."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise output_error(
            f"the hub's cache cannot be written: {reason(error)}",
            "Set HF_HUB_CACHE to a folder that you own.",
            where=str(folder),
        ) from error


class NoBar:
    """Replaces the client's progress bar, because h2o-pack's own bar counts written bytes."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        """Accept the arguments of a progress bar."""

    def __enter__(self) -> NoBar:
        return self

    def __exit__(self, *_error: object) -> None:
        """Show nothing."""

    def update(self, _amount: float | None = 1) -> None:
        """Show nothing."""


def downloaded(contents: Contents) -> Path | None:
    """Return the snapshot in the hub's cache if all its files have their full size."""
    folder = snapshot(contents)
    try:
        whole = all((folder / e.path).stat().st_size == e.size for e in contents.files)
    except OSError:
        return None
    return folder if whole else None
