"""Finds the real file behind a name in a model's folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files.paths import why_bad_link


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
