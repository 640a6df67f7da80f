"""manifest.json: every file of Model/ with its size and sha256; the app checks it too."""

from __future__ import annotations

import hashlib
import json
import os
import unicodedata
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import msgspec

from h2o_pack.errors import Problems, UserError, model_error
from h2o_pack.files.lock import FORMAT, Digest, damaged, read_record
from h2o_pack.files.paths import (
    ADAPTER,
    ADAPTER_CONFIG,
    MODEL_FOLDER,
    MODEL_MANIFEST,
    SHA256,
    why_unsafe,
)
from h2o_pack.resolved.chat import Chat
from h2o_pack.results import Count, doc
from h2o_pack.spec import PREFILL_STEP

RESERVED = "resources"  # codesign treats such a folder as the bundle's own


def check_paths(paths: Iterable[str]) -> None:
    """Refuse paths that leave Model/, collide there, or prevent signing the app.

    Raises UserError with all errors. APFS ignores case and the composition of accents in names,
    so two names that differ only in these are the same.
    """
    problems = Problems()
    files: dict[tuple[str, ...], str] = {(folded(MODEL_MANIFEST),): MODEL_MANIFEST}
    folders: dict[tuple[str, ...], str] = {}
    for path in paths:
        with problems.caught():
            check_path(path)
            key = tuple(folded(part) for part in path.split("/"))
            above = [key[:end] for end in range(1, len(key))]
            others = (files.get(key), folders.get(key), *map(files.get, above))
            other = next(filter(None, others), None)
            if other is not None:
                raise refused_path(
                    path,
                    f"has the same name as {printable(other)} on Apple's disks, which "
                    "ignore case",
                )
            files[key] = path
            folders |= dict.fromkeys(above, path)
    problems.refuse()


def check_path(path: str) -> None:
    """Raise UserError if a path is not allowed, without regard to other paths."""
    reason = why_unsafe(path)
    if reason is not None:
        raise refused_path(path, reason)
    if RESERVED in map(folded, path.split("/")[:-1]):
        raise refused_path(path, "is in a folder named Resources, which iOS cannot sign")


def folded(name: str) -> str:
    """Return the key of a name: APFS treats names with equal keys as the same."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())


def printable(path: str) -> str:
    """Write a path so that a terminal shows it completely and without control characters."""
    return ascii(path)[:200]


def refused_path(path: str, what: str) -> UserError:
    """Make the error for a path that cannot be bundled; what: the reason, as a predicate."""
    return model_error(
        f"the model's file {printable(path)} {what}",
        "Rename the file in a local copy of the model, and give the copy's folder as --model.",
    )


DECIDING = ("config.json", "tokenizer.json", "*.safetensors", ADAPTER, ADAPTER_CONFIG)
"""Files that decide the token ids of a text, and the keys and values of a token."""


@dataclass(frozen=True)
class SourceFile:
    """The model's own file from which h2o-pack wrote a file of Model/."""

    path: str
    sha256: Digest


@dataclass(frozen=True)
class BundledFile:
    """A file of Model/: its path there, size in bytes and hexadecimal sha256.

    pieces: the sha256 of each piece, if the app downloads the file. sources: the model's own
    files from which h2o-pack wrote this one; None for a copy.
    """

    path: str
    size: Count
    sha256: Digest
    pieces: tuple[Digest, ...] | None = None
    sources: tuple[SourceFile, ...] | None = None


@dataclass(frozen=True)
class PreparedPrompt:
    """The origin of a system prompt's caches."""

    tokens: Annotated[Count, doc("Tokens with which every conversation begins.")]
    chunk: Annotated[Count, doc("Tokens that the model read at once.")]
    prompt: Annotated[Digest, doc("sha256 of the prompt's text.")]
    template: Annotated[
        str,
        msgspec.Meta(pattern=f"^({SHA256.pattern})?$", max_length=64),
        doc("sha256 of the chat template; empty without a template."),
    ]
    model: Annotated[Digest, doc("Digest of the model, from the manifest.")]
    policy: Annotated[Digest, doc("sha256 of the caches' settings.")]
    made_by: Annotated[str, doc("Programs that computed the caches, with their versions.")]


@dataclass(frozen=True)
class Manifest:
    """The content of a model's folder, Model/ or a folder in it.

    commit: of the hub's repository, "" for a local folder. digest: identifies the model, see
    `model_digest`. system_prompt: the prompt whose caches are among the files. piece_size:
    bytes of the pieces in which an app downloads the files; None if the files are in the app.
    prompt_chunk: the most tokens of a prompt that the model reads at once. chat: what the
    session must know of the chat template.
    """

    model: str
    files: tuple[BundledFile, ...]
    commit: str = ""
    digest: str = ""
    system_prompt: PreparedPrompt | None = None
    piece_size: Count | None = None
    prompt_chunk: Count = PREFILL_STEP
    chat: Chat = field(default_factory=Chat)

    def __post_init__(self) -> None:
        """Fill in the digest; ValueError if the given digest does not match the files."""
        digest = model_digest(self.files)
        if self.digest not in {"", digest}:
            raise ValueError("the digest does not match the files")
        object.__setattr__(self, "digest", digest)

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)

    def to_json(self) -> str:
        """Write the manifest as the text of its file, without the fields that are None."""

        def stated(fields: list[tuple[str, Any]]) -> dict[str, Any]:
            return {name: value for name, value in fields if value is not None}

        document = {"format": FORMAT, **asdict(self, dict_factory=stated)}
        return json.dumps(document, indent=2) + "\n"


def model_digest(files: Iterable[BundledFile]) -> str:
    """Return the sha256 that identifies the model.

    Caches are valid only for a model with the same digest. The digest is computed from one line
    per deciding file, in the order of paths, as sha256sum writes them. The chat template and
    the defaults of sampling are not included.
    """
    deciding = [file for file in files if any(fnmatchcase(file.path, n) for n in DECIDING)]
    ordered = sorted(deciding, key=lambda file: file.path)
    lines = "".join(f"{file.sha256}  {file.path}\n" for file in ordered)
    return hashlib.sha256(lines.encode()).hexdigest()


def write(package: Path, manifest: Manifest, folder: str = MODEL_FOLDER) -> None:
    """Write the manifest of a model's folder; it is on the disk when this returns."""
    path = package / folder / MODEL_MANIFEST
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(manifest.to_json())
        file.flush()
        os.fsync(file.fileno())


def read(package: Path, folder: str = MODEL_FOLDER) -> Manifest:
    """Read a model's manifest; UserError if it is missing, damaged or has unsafe paths."""
    path = package / folder / MODEL_MANIFEST
    try:
        manifest = read_record(path, Manifest)
    except FileNotFoundError as error:
        raise damaged(path, "is missing") from error
    try:
        check_paths(file.path for file in manifest.files)
    except UserError as error:
        raise damaged(path, f"cannot be used: {error.what}") from error
    return manifest
