"""Downloads a model's files into the hub's own cache with the hub's own client."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from filelock import FileLock
from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.file_download import http_get, repo_folder_name
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from h2o_pack.errors import model_error, network_error
from h2o_pack.files.digests import sha256_of
from h2o_pack.files.write import in_turn
from h2o_pack.hub.client import at_most, hub_errors
from h2o_pack.model import Contents, Model, ModelFile
from h2o_pack.progress import BarAdvance, ProgressReporter

SUFFIX = ".h2o-pack.incomplete"
EXPIRED = (401, 403)


def hub_cache() -> Path:
    """Return the folder of the hub's cache, which need not exist."""
    return Path(constants.HF_HUB_CACHE)


def missing(model: Model) -> tuple[ModelFile, ...]:
    """Return the model's files that the hub's cache lacks, without asking the hub."""
    folder = snapshot(model)
    return tuple(file for file in model.files if not (folder / file.path).is_file())


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
            hub_errors(model.id, model.commit),
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
    model: Model, file: ModelFile, advance: BarAdvance, say: ProgressReporter
) -> None:
    """Download a file in LFS, continuing an interrupted download."""
    blob = repository(model) / "blobs" / file.sha256
    # The client's own lock, so that two downloads of one blob wait for each other.
    lock = hub_cache() / ".locks" / repository(model).name / f"{file.sha256}.lock"
    for folder in (blob.parent, lock.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with in_turn(FileLock(lock, mode=0o664), say, f"download of {file.path}"):
        if blob.exists():
            advance(file.size)
        else:
            receive(model, file, blob, advance)
    fetch_small(model, file)  # finds the blob and links it


def receive(model: Model, file: ModelFile, blob: Path, advance: BarAdvance) -> None:
    """Download a blob; if a continued download has wrong bytes, start again."""
    path = partial_of(model, file)
    while True:
        with path.open("ab") as partial:
            if partial.tell() > file.size:  # no run can complete it
                partial.seek(0)
                partial.truncate()
            continued = partial.tell() > 0
            advance(partial.tell())
            transfer(model, file, partial, advance)
            partial.flush()
            os.fsync(partial.fileno())
        digest = sha256_of(path)
        if digest == file.sha256:
            path.replace(blob)  # a name that other programs trust
            return
        path.unlink()
        advance(-file.size)
        if not continued:
            raise network_error(
                f"{file.path} of {model.id} arrived with the sha256 {digest[:12]}… instead of "
                f"{file.sha256[:12]}…",
                "h2o-pack has removed the file. Run the command again; if this happens "
                "again, a proxy or a mirror changes files.",
            )


def transfer(model: Model, file: ModelFile, partial: BinaryIO, advance: BarAdvance) -> None:
    """Download the missing bytes of a file.

    The hub gives a signed address for about an hour. After that, a new address is requested, as
    long as bytes arrive.
    """
    while (before := partial.tell()) != file.size:
        address, headers = address_of(model, file)
        try:
            get(address, headers, file, partial, advance)
        except HfHubHTTPError as error:
            if error.response.status_code not in EXPIRED or partial.tell() == before:
                raise


def address_of(model: Model, file: ModelFile) -> tuple[str, dict[str, str]]:
    """Return a file's address and the headers to request it; UserError if it has changed."""
    url = hf_hub_url(model.id, file.path, revision=model.commit)
    metadata = get_hf_file_metadata(url, retry_on_errors=True)
    same = (metadata.commit_hash, metadata.etag) == (model.commit, file.sha256)
    if not same or metadata.size not in (None, file.size):
        raise model_error(
            f"{file.path} of {model.id} has changed since the hub listed it at "
            f"{model.commit[:12]}",
            "Run the command again.",
        )
    headers = dict(build_hf_headers())
    if urlsplit(metadata.location)[:2] != urlsplit(url)[:2]:
        # The address of a CDN is signed: the CDN must not get the token.
        headers.pop("authorization", None)
    return metadata.location, headers


def get(
    address: str,
    headers: dict[str, str],
    file: ModelFile,
    partial: BinaryIO,
    advance: BarAdvance,
) -> None:
    """Let the client download a file from the end of `partial` on."""
    size = partial.tell()

    def bar(*, initial: int, **_options: Any) -> Bar:
        advance(initial - size)  # 0, or less if the server sends the whole file again
        return Bar(advance)

    with at_most(file.size):
        http_get(
            address,
            partial,
            resume_size=size,
            headers=headers,
            expected_size=file.size,
            displayed_filename=file.path,
            tqdm_class=bar,  # type: ignore[arg-type]
        )


class Bar:
    """What the client takes for its progress bar; `update` gets the bytes of each piece."""

    def __init__(self, advance: BarAdvance) -> None:
        """Pass the bytes to h2o-pack's own bar; they are negative if a file begins again."""
        self.update = advance

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_error: object) -> None:
        """Leave h2o-pack's bar as it is."""


def downloaded(contents: Contents) -> Path | None:
    """Return the snapshot in the hub's cache if all its files have their full size."""
    folder = snapshot(contents)
    try:
        whole = all((folder / e.path).stat().st_size == e.size for e in contents.files)
    except OSError:
        return None
    return folder if whole else None
