"""What bundling needs to know of a model, whoever resolved it."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Protocol

from h2o_pack.errors import ExitCode, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class File(Protocol):
    """A file of a model; `path` has `/` between folders, sha256 is "" where unknown."""

    @property
    def path(self) -> str:
        """Where it lies in the model's folder."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def sha256(self) -> str:
        """Hexadecimal digits."""


class Source(Protocol):
    """A model to bundle: in a folder, or on the hub at a commit when folder is None."""

    @property
    def id(self) -> str:
        """Hub id, alias of an embedded model, or the folder's name."""

    @property
    def commit(self) -> str:
        """The hub's commit, 40 digits, or "" for a folder."""

    @property
    def files(self) -> Sequence[File]:
        """What inference needs, nothing else."""

    @property
    def folder(self) -> Path | None:
        """Where all files lie, if they need not be fetched."""


def local_file(folder: Path, path: str) -> Path:
    """Return the real file that `path` in a model's folder is, links followed.

    UserError when it is not a regular file, or lies outside the folder. A snapshot
    of the hub's cache is all links, to `blobs` of its repository or of the cache.
    """
    place = folder / path
    try:
        real = place.resolve(strict=True)
        regular = stat.S_ISREG(real.stat().st_mode)
    except (OSError, RuntimeError) as error:
        raise unusable(place, f"cannot be read: {reason(error)}") from error
    if not any(real.is_relative_to(root) for root in roots(folder)):
        raise unusable(place, f"is a link to {real}, outside the model's folder")
    if not regular:
        raise unusable(place, "is not a regular file")
    if not os.access(real, os.R_OK):
        raise unusable(place, "cannot be read: Permission denied")
    return real


def roots(folder: Path) -> list[Path]:
    """Return the folders that a model's files may really lie in."""
    real = folder.resolve()
    if real.parent.name != "snapshots":
        return [real]
    repository = real.parent.parent
    return [real, repository / "blobs", repository.parent / "blobs"]


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
