"""Keeps what describes models of the hub, so that it is asked for once.

An entry is a file named by the model's id and commit: a line with the sha256 of the rest,
then JSON. What is damaged or of another format is as good as absent. Branches are kept
apart, for when the hub cannot be asked.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import msgspec

from h2o_pack.files.download_folder import cache_folder
from h2o_pack.hub.client import COMMIT
from h2o_pack.models.inspection import Contents


@dataclass(frozen=True)
class Entry:
    """The JSON of an entry."""

    contents: Contents
    format: Literal[4] = 4


def load(hub_id: str, commit: str) -> Contents | None:
    """Return what is kept of a model at a commit, None if it is not or is damaged."""
    try:
        first, _, body = entry(hub_id, commit).read_bytes().partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != first:
            return None
        given = msgspec.convert(json.loads(body), Entry).contents
    except (OSError, ValueError):
        return None
    return given if (given.id, given.commit) == (hub_id, commit) else None


def store(contents: Contents) -> None:
    """Keep what describes a model. A cache that cannot be written is no error."""
    # By json, as a configuration may have Infinity.
    body = json.dumps(msgspec.to_builtins(Entry(contents)), separators=(",", ":")).encode()
    digest = hashlib.sha256(body).hexdigest().encode()
    write(entry(contents.id, contents.commit), digest + b"\n" + body)


def last_commit(hub_id: str, revision: str) -> str:
    """Return the commit that a branch was at when it was last asked for, or ""."""
    try:
        commit = branch(hub_id, revision).read_text("ascii")
    except (OSError, ValueError):
        return ""
    return commit if COMMIT.fullmatch(commit) else ""


def remember(hub_id: str, revision: str, commit: str) -> None:
    """Keep the commit that a branch is at."""
    if last_commit(hub_id, revision) != commit:
        write(branch(hub_id, revision), commit.encode())


def entry(hub_id: str, commit: str) -> Path:
    """Return the file of a model at a commit."""
    return folder(hub_id) / f"{commit}.json"


def branch(hub_id: str, revision: str) -> Path:
    """Return the file with the commit of a branch."""
    return folder(hub_id) / "branches" / quote(revision, safe="")


def folder(hub_id: str) -> Path:
    """Return the folder of a model."""
    return cache_folder() / "metadata" / quote(hub_id, safe="")


def write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; nothing happens where it cannot be written."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
