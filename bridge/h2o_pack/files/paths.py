"""Names of files as others give them: inside the model's folder, or refused."""

from __future__ import annotations

import re
from pathlib import Path

from h2o_pack.errors import shown

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


def why_bad_link(path: Path, folder: Path) -> str | None:
    """Say why a link in a model folder is not followed; None if it may be.

    A snapshot in the hub's cache links into the blobs of its repository, or through them
    into those that all repositories share.
    """
    allowed = [folder.resolve()]
    if allowed[0].parent.name == "snapshots":
        repository = allowed[0].parent.parent
        allowed += [repository / "blobs", repository.parent / "blobs"]
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: a loop, before Python 3.13
        return "is a link that leads nowhere"
    if any(real.is_relative_to(each) for each in allowed):
        return None
    return f"is a link to {shown(str(real))}, outside of the folder"
