"""Names of files as others give them: inside the model's folder, or refused."""

from __future__ import annotations

import re
from pathlib import Path

LONGEST = 255
ABSOLUTE = re.compile(r"[/~]|[A-Za-z]:")


def why_unsafe(name: object) -> str | None:
    """Say why a name in a listing or an index is no path inside a folder; None if it is."""
    if not isinstance(name, str) or not name:
        return "is no name"
    parts = name.split("/")
    reasons = {
        "has control or unprintable characters": not name.isprintable(),
        "has a backslash": "\\" in name,
        "is not inside the model's folder": bool(ABSOLUTE.match(name)),
        "leads out of its folder": any(part in ("", ".", "..") for part in parts),
        "is too long": any(len(part.encode(errors="replace")) > LONGEST for part in parts),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def escapes(path: Path, folder: Path) -> bool:
    """Whether a file of a model folder is a link to somewhere else.

    A snapshot in the hub's cache links into the blobs of its repository, or through them
    into those that all repositories share, and may.
    """
    allowed = [folder.resolve()]
    if allowed[0].parent.name == "snapshots":
        repository = allowed[0].parent.parent
        allowed += [repository / "blobs", repository.parent / "blobs"]
    real = path.resolve()
    return not any(real.is_relative_to(each) for each in allowed)
