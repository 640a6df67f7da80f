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
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote

from h2o_pack.architectures.model import ModelFile
from h2o_pack.files.download_folder import cache_folder
from h2o_pack.hub.client import COMMIT
from h2o_pack.models.inspection import Contents
from h2o_pack.models.safetensors import Tensor

FORMAT = 1


def load(hub_id: str, commit: str) -> Contents | None:
    """Return what is kept of a model at a commit, None if it is not or is damaged."""
    try:
        first, _, body = entry(hub_id, commit).read_bytes().partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != first:
            return None
        document = json.loads(body)
        if document.pop("format") != FORMAT:
            return None
        given = Contents(
            id=document["id"],
            commit=document["commit"],
            config=document["config"],
            index=document["index"],
            tensors={
                file: tuple(Tensor(*each) for each in tensors)
                for file, tensors in document["tensors"].items()
            },
            files=tuple(ModelFile(**each) for each in document["files"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return given if (given.id, given.commit) == (hub_id, commit) else None


def store(contents: Contents) -> None:
    """Keep what describes a model. A cache that cannot be written is no error."""
    document = {
        "format": FORMAT,
        "id": contents.id,
        "commit": contents.commit,
        "config": dict(contents.config),
        "index": None if contents.index is None else dict(contents.index),
        "tensors": {
            file: [[each.name, each.dtype, each.bytes] for each in tensors]
            for file, tensors in contents.tensors.items()
        },
        "files": [asdict(each) for each in contents.files],
    }
    body = json.dumps(document, separators=(",", ":")).encode()
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
