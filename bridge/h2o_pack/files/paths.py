"""Names in a package, which names are safe, the file behind a link, and the cache's folder."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from pathlib import Path
from urllib.parse import quote

from h2o_pack.errors import ExitCode, UserError, shown

APP_FOLDER = "App"
"""The app: written once, then the user's."""
NEW_APP_FOLDER = "App.new"
"""A newer scaffold of the app, beside the user's."""
MODEL_FOLDER = "Model"
"""Of the model; several models have folders of their own in it."""
MODEL_MANIFEST = "manifest.json"
REPLACED_FOLDER = "Replaced"
"""Files of ours that the user changed, from before they were written anew."""
VENDOR_FOLDER = "Vendor"
SYSTEM_PROMPT, ADAPTER = "system-prompt.tensors", "adapters.tensors"
"""In MODEL_FOLDER. In the format of safetensors, of which mlx-swift-lm takes every file for
weights."""
ADAPTER_CONFIG = "adapter_config.json"
TRACES_FOLDER = "Traces"
"""In the sources of the model's module: what its app replays on a device."""
VENDOR_MANIFEST = "manifest.json"


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


def local_file(folder: Path, path: str) -> Path:
    """Return the real file that `path` in a model's folder is, links followed.

    UserError when it is not a regular file, or lies outside the folder.
    """
    place = folder / path
    try:
        real = place.resolve(strict=True)
        regular = stat.S_ISREG(real.stat().st_mode)
    except (OSError, RuntimeError) as error:
        raise unusable(place, f"cannot be read: {reason(error)}") from error
    bad = why_bad_link(place, folder)  # of the file, or of a folder on the way to it
    if bad is not None:
        raise unusable(place, bad)
    if not regular:
        raise unusable(place, "is not a regular file")
    if not os.access(real, os.R_OK):
        raise unusable(place, "cannot be read: Permission denied")
    return real


MOST_BYTES = 64 << 20
"""Of a file of settings, records or text."""


def read_file(path: Path, most: int = MOST_BYTES) -> bytes:
    """Read a file of at most `most` bytes.

    A pipe or a device may have no end, or no beginning: of those only what a shell hands over,
    below /dev, is read.

    Raises:
        OSError: it cannot be read, is no file, or is longer; `strerror` says which.

    """
    mode = path.stat().st_mode
    # Opening a folder is the system's error.
    ordinary = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    if not ordinary and not path.is_relative_to("/dev"):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB", str(path))
    return data


def reason(error: BaseException) -> str:
    """Say an error of the system in words."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def unusable(place: Path, what: str) -> UserError:
    """Make the error for a file of a model that cannot be bundled."""
    return UserError(
        f"{place.name} {what}",
        where=str(place),
        remedy="Put the file itself into the model's folder, or give another --model.",
        code=ExitCode.MODEL,
    )


CACHE_VARIABLE = "H2O_PACK_CACHE"
MIRROR = "H2O_PACK_MIRROR"  # what takes the place of https://github.com


def cache_folder() -> Path:
    """Return the folder for downloads: $H2O_PACK_CACHE, or the system's usual place."""
    own = os.environ.get(CACHE_VARIABLE)
    if own:
        return Path(own).expanduser()
    given = os.environ.get("XDG_CACHE_HOME")
    if sys.platform == "darwin" and not given:
        return Path.home() / "Library/Caches/h2o-pack"
    return Path(given or Path.home() / ".cache") / "h2o-pack"


def metadata_folder(hub_id: str) -> Path:
    """Return the folder with what the hub said of a model."""
    return cache_folder() / "metadata" / quote(hub_id, safe="")
