"""h2o-pack.lock.json: the options and sources of a package; it marks the folder as ours."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from h2o_pack.errors import UserError, output_error, version_error
from h2o_pack.files.paths import MODEL_FOLDER, SHA256
from h2o_pack.results import doc
from h2o_py.files import read_file

NAME = "h2o-pack.lock.json"
FORMAT = 1
"""The format of a package's other records."""
LOCK_FORMAT = 2
REMEDY = (
    "Move your own files (App/ too) out of the folder, delete the rest, and make the "
    "package again"
)
_T = TypeVar("_T")


Digest = Annotated[str, msgspec.Meta(pattern=f"^{SHA256.pattern}$", max_length=64)]
"""A sha256 in a record: 64 hexadecimal digits, and nothing else."""


@dataclass(frozen=True)
class EditedFile:
    """A file of Vendor/ that an edit changed."""

    path: Annotated[str, doc("Relative to Vendor/.")]
    before: Annotated[Digest, doc("sha256 of the file before the edit.")]
    after: Annotated[Digest, doc("sha256 of the file after the edit.")]


@dataclass(frozen=True)
class Vendored:
    """How Vendor/ was made. edits is the sha256 of the edits and added files.

    contents: the sha256 of Vendor/manifest.json, which has the sha256 of each file. commits:
    the commit of each package and submodule, "" for a folder without git. offline: whether
    Vendor/ contains everything that a build needs.
    """

    host: str
    edits: Digest
    files: tuple[EditedFile, ...]
    contents: Digest
    commits: dict[str, str] = field(default_factory=dict)
    offline: bool = False


Folder = Annotated[
    str, msgspec.Meta(pattern=rf"^{MODEL_FOLDER}(/[A-Za-z0-9][A-Za-z0-9._-]*)?\Z")
]


@dataclass(frozen=True, kw_only=True)
class LockedModel:
    """A model of the package.

    folder: the model's folder in the package. commit: on the hub, "" for a local model. config,
    kv, group_size: settings of its cache, including defaults.
    """

    model: str
    config: dict[str, Any]
    folder: Folder = MODEL_FOLDER
    commit: str = ""
    kv: str = "16"
    group_size: int = 64


@dataclass(frozen=True, kw_only=True)
class Lock:
    """The content of the lock.

    spec: the options of the package, see `spec.from_document`. models: the models, the largest
    first. upstream: the pins at that time. files: the sha256 of each generated file by path,
    except files of the app. app: the sha256 of each file of the newest scaffold in App or
    App.new, by its path there; None without one. notes: those about settings that were shown.
    """

    h2o_pack: str
    package: str
    module: str
    spec: dict[str, Any]
    models: Annotated[tuple[LockedModel, ...], msgspec.Meta(min_length=1)]
    upstream: dict[str, dict[str, str]]
    files: dict[str, Digest]
    app: dict[str, Digest] | None = None
    vendor: Vendored | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_downloaded(self) -> bool:
        """Whether the app fetches the model from a server."""
        delivery = self.spec.get("delivery")
        return isinstance(delivery, dict) and bool(delivery.get("download"))

    def to_json(self) -> str:
        """Write the lock as the text of its file."""
        return (
            json.dumps({"format": LOCK_FORMAT, **asdict(self)}, indent=2, sort_keys=True) + "\n"
        )


def sha256(data: bytes) -> str:
    """Return the hexadecimal sha256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def read(package: Path) -> Lock:
    """Read a package's lock; UserError if the folder is not a package of ours."""
    path = package / NAME
    try:
        return read_record(path, Lock, LOCK_FORMAT)
    except FileNotFoundError as error:
        raise output_error(
            f"{package} is not a package of h2o-pack: it has no {NAME}",
            "Give a folder that `h2o-pack ios` made.",
        ) from error


def read_record(path: Path, kind: type[_T], version: int = FORMAT) -> _T:
    """Read a record of ours into its dataclass; version: the format that it must have.

    Raises UserError: it is damaged, or has the format of another h2o-pack. FileNotFoundError:
    there is none.
    """
    try:
        data = read_file(path)
        file_format = msgspec.json.decode(data, type=Head).format
        if file_format < version:
            raise version_error(
                f"an earlier h2o-pack made the package: {path.name} has format {file_format}",
                f"{REMEDY} with `h2o-pack ios`.",
                where=str(path),
            )
        if file_format != version:
            raise damaged(path, f"does not have format {version}")
        return msgspec.json.decode(data, type=kind)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path) from error


class Head(msgspec.Struct):
    """The keys that all our records have."""

    format: int


def damaged(path: Path, what: str = "is damaged") -> UserError:
    """Make the error for a record of h2o-pack that cannot be read."""
    return output_error(f"{path.name} {what}", f"{REMEDY}.", where=str(path))
