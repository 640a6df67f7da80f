"""h2o-pack.lock.json: what a package was made from; marks a folder as ours."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files.layout import MODEL_FOLDER
from h2o_pack.results import Count, doc

NAME = "h2o-pack.lock.json"
FORMAT = 1
_T = TypeVar("_T")


@dataclass(frozen=True)
class EditedFile:
    """A file of Vendor/ that an edit changed."""

    path: Annotated[str, doc("Relative to Vendor/.")]
    before: Annotated[str, doc("sha256 before the edit.")]
    after: Annotated[str, doc("sha256 after it.")]


@dataclass(frozen=True)
class Vendored:
    """How Vendor/ was made. edits is the sha256 of the edits and added files.

    contents: the sha256 of Vendor/manifest.json, which has those of all files. commits: of each
    package and submodule, "" where a folder without git was given. offline: whether it holds
    all that SwiftPM would fetch.
    """

    host: str
    edits: str
    files: tuple[EditedFile, ...]
    contents: str = ""
    commits: dict[str, str] = field(default_factory=dict)
    offline: bool = False


@dataclass(frozen=True)
class PreparedPrompt:
    """What the caches of a system prompt were computed from."""

    tokens: Annotated[Count, doc("With which every first turn begins.")]
    chunk: Annotated[Count, doc("Tokens that the model read at once.")]
    prompt: Annotated[str, doc("sha256 of its text.")]
    template: Annotated[str, doc("sha256 of the chat template; empty without one.")]
    model: Annotated[str, doc("The digest of the model, by the manifest.")]
    policy: Annotated[str, doc("sha256 of the caches' settings.")]
    made_by: Annotated[str, doc("The programs that computed them, with versions.")]


Folder = Annotated[
    str, msgspec.Meta(pattern=rf"^{MODEL_FOLDER}(/[A-Za-z0-9][A-Za-z0-9._-]*)?\Z")
]


@dataclass(frozen=True)
class LockedModel:
    """A model of the package; its fields are as the lock's own."""

    folder: Folder
    model: str
    commit: str
    config: dict[str, Any]
    kv: str
    group_size: int
    system_prompt: PreparedPrompt | None = None


@dataclass(frozen=True)
class Lock:
    """The content of the lock.

    config, kv, group_size, budgets: the caches; budgets has the rows of each layer for heavy
    hitters and newest tokens, or is None, and recall_layers those that they name for recall.
    files: sha256 of each generated file by path, but for the app's. app: sha256 of the files
    of the newest scaffold that was written to App or App.new, by path in it; None before one
    was. commit: the model's on the hub, "" for a local one. upstream_version: whose pins
    `upstream` has. folder: where the model lies. system_prompt: the one whose caches are
    there. others: the package's further models, from the second largest on. options: with
    which the package was asked for, see `package.replay`.
    """

    h2o_pack: str
    model: str
    package: str
    module: str
    config: dict[str, Any]
    upstream: dict[str, dict[str, str]]
    files: dict[str, str]
    app: dict[str, str] | None = None
    vendor: Vendored | None = None
    commit: str = ""
    kv: str = "dense"
    group_size: int = 64
    budgets: list[dict[str, int] | None] | None = None
    recall_layers: list[int] | None = None
    upstream_version: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    folder: Folder = MODEL_FOLDER
    system_prompt: PreparedPrompt | None = None
    others: tuple[LockedModel, ...] = ()

    @property
    def models(self) -> tuple[LockedModel, ...]:
        """All models of the package, the largest first."""
        fields = (each.name for each in dataclasses.fields(LockedModel))
        return (LockedModel(**{name: getattr(self, name) for name in fields}), *self.others)

    def to_json(self) -> str:
        """Write the lock as the text of its file."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2, sort_keys=True) + "\n"


def sha256(data: bytes) -> str:
    """Return the hexadecimal sha256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def read(package: Path) -> Lock:
    """Read a package's lock; UserError when the folder is not a package of ours."""
    path = package / NAME
    try:
        return read_record(path, Lock)
    except FileNotFoundError as error:
        raise UserError(
            f"{package} is not a package made by h2o-pack: it has no {NAME}",
            remedy="Give a folder that `h2o-pack ios --output` made.",
            code=ExitCode.OUTPUT,
        ) from error


def read_record(path: Path, kind: type[_T]) -> _T:
    """Read a record of ours into its dataclass; UserError when it is damaged.

    Raises:
        FileNotFoundError: there is none.

    """
    try:
        data = path.read_bytes()
        found = msgspec.json.decode(data, type=Head)
        if found.format != FORMAT:
            raise damaged(path, f"has another format than {FORMAT}")
        return msgspec.json.decode(data, type=kind)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path) from error


class Head(msgspec.Struct):
    """What all records of ours have."""

    format: int


def damaged(path: Path, what: str = "is damaged") -> UserError:
    """Make the error for a record of ours that cannot be read."""
    return UserError(
        f"{path.name} {what}",
        where=str(path),
        remedy="Move what is yours out of the folder, App/ among it, delete the rest, and make "
        "the package again.",
        code=ExitCode.OUTPUT,
    )
