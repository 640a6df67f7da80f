"""Names in a package, checks of names, and the folder of the cache."""

from __future__ import annotations

import errno
import os
import re
import sys
import tempfile
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from h2o_pack.errors import output_error

APP_FOLDER = "App"
"""The app: written once; it then belongs to the user."""
NEW_APP_FOLDER = "App.new"
"""A newer scaffold of the app, next to the user's app."""
MODEL_FOLDER = "Model"
"""The folder of the model; several models each have a folder in it."""
MODEL_MANIFEST = "manifest.json"
REPLACED_FOLDER = "Replaced"
"""The user's versions of generated files that were written again."""
VENDOR_FOLDER = "Vendor"
SYSTEM_PROMPT, ADAPTER = "system-prompt.tensors", "adapters.tensors"
"""Files in MODEL_FOLDER in the safetensors format. They lack its extension, because
mlx-swift-lm loads all files with that extension as weights."""
CONFIG, ADAPTER_CONFIG = "config.json", "adapter_config.json"
VENDOR_MANIFEST = "manifest.json"


GIT_ID, SHA256 = re.compile(r"[0-9a-f]{40}"), re.compile(r"[0-9a-f]{64}")
"""Names that git and the hub make from the content of a file or commit."""
LONGEST = 255
ABSOLUTE = re.compile(r"[/~]|[A-Za-z]:")


def why_unsafe(name: object) -> str | None:
    """Say why a name in a listing or an index is not a path inside a folder; None if it is."""
    if not isinstance(name, str) or not name:
        return "is not a name"
    parts = name.split("/")
    reasons = {
        "has control or unprintable characters": not name.isprintable(),
        "has a backslash": "\\" in name,
        "is not a relative path": bool(ABSOLUTE.match(name)),
        'has an empty part, or a part "." or ".."': any(
            part in ("", ".", "..") for part in parts
        ),
        "is too long": any(len(part.encode(errors="replace")) > LONGEST for part in parts),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def from_here(path: Path) -> Path:
    """Return a path relative to the current folder, if it is inside of it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def is_folder(path: Path) -> bool:
    """Whether a path is a folder itself, not a link to one."""
    return path.is_dir() and not path.is_symlink()


def existing(path: Path) -> Path:
    """Return a path if it exists, or else the nearest folder above it that exists."""
    absolute = path.absolute()
    places = (absolute, *absolute.parents)
    return next(place for place in places if os.path.exists(place))  # noqa: PTH110  never raises


def obstacle_above(folder: Path, path: str) -> Path | None:
    """Return the first of a path's parents in a folder that exists and is no real folder."""
    parents = [folder / parent for parent in PurePosixPath(path).parents][-2::-1]
    return next((p for p in parents if os.path.lexists(p) and not is_folder(p)), None)


def place_in(folder: Path, path: str) -> Path:
    """Return the place at which a file of a folder may be written, or to which it may move.

    Each of its parents in the folder is a real folder or does not exist yet. Everything that
    h2o-pack writes in a package has its place from here. Raises UserError: the path leads out
    of the folder, or through a link or a file.
    """
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts:
        raise output_error(f"{path!r} leads out of the folder", MOVE, where=str(folder))
    obstacle = obstacle_above(folder, path)
    if obstacle is not None:
        what = "a link" if obstacle.is_symlink() else "no folder"
        raise output_error(
            f"{obstacle} is {what}, so h2o-pack does not write {path} through it", MOVE
        )
    return folder / path


MOVE = "Move it away and run the command again. h2o-pack changed nothing."
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""The numbers of errors that free space mends."""


def free_space_or(remedy: str, error: Exception) -> str:
    """Return a remedy, which begins with free space if the error is a full disk."""
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        return f"Free space, or {remedy[0].lower()}{remedy[1:]}"
    return remedy


ROOM = 1 << 20
"""Bytes that must be free for temporary files: a compiler that MLX starts needs about these."""


def refuse_full_temporary() -> None:
    """Raise UserError if the folder for temporary files is full or cannot be written.

    Libraries and compilers then fail in ways that say nothing of it.
    """
    # If this folder is full, Python takes another one, but a compiler does not.
    folder = os.environ.get("TMPDIR") or tempfile.gettempdir()
    try:
        with tempfile.NamedTemporaryFile(prefix="h2o-pack-", dir=folder) as file:
            file.write(b"\0" * ROOM)
            file.flush()
    except OSError as error:
        raise output_error(
            f"the folder for temporary files cannot be written: {reason(error)}",
            "Free space in it, or set TMPDIR to another folder.",
            where=folder,
        ) from error


def reason(error: BaseException) -> str:
    """Return the text of an error of the system."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


CACHE_VARIABLE = "H2O_PACK_CACHE"
MIRROR = "H2O_PACK_MIRROR"  # replaces https://github.com


def cache_folder() -> Path:
    """Return the folder for downloads: $H2O_PACK_CACHE, or the system's usual folder."""
    if own := os.environ.get(CACHE_VARIABLE):
        return Path(own).expanduser()
    return usual_folder("XDG_CACHE_HOME", ".cache", "Library/Caches")


def usual_folder(variable: str, place: str, place_on_a_mac: str) -> Path:
    """Return h2o-pack's folder below the one that a variable names, or below a usual place."""
    usual = place_on_a_mac if sys.platform == "darwin" else place
    return Path(os.environ.get(variable) or Path.home() / usual) / "h2o-pack"


def metadata_folder(hub_id: str, endpoint: str) -> Path:
    """Return the folder with the metadata of a model that the hub at an address sent."""
    names = (quote(name, safe="") for name in (endpoint, hub_id))
    return cache_folder().joinpath("metadata", *names)
