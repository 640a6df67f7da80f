"""Keeps the user's files when h2o-pack writes a folder again.

"A file of ours" is a file that h2o-pack wrote. Files that the user added move to the same place
in the new folder. A file of ours that the user changed moves to Replaced/, and so does a user's
file whose place the new folder needs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from h2o_pack.files.digests import sha256_of
from h2o_pack.files.paths import (
    APP_FOLDER,
    NEW_APP_FOLDER,
    REPLACED_FOLDER,
    is_folder,
    obstacle_above,
    place_in,
)

ANY = None
"""Instead of a digest: the file is ours, whatever its content. No record can say this."""


_digests: dict[tuple[int, ...], str] = {}


def digest_of(place: Path) -> str:
    """Return a file's sha256; it is computed again only if the file has changed."""
    status = place.stat()
    state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    if state not in _digests:
        _digests[state] = sha256_of(place)
    return _digests[state]


@dataclass(frozen=True)
class Written:
    """The files of a folder that h2o-pack wrote: {path: sha256, or ANY}."""

    files: Mapping[str, str | None]

    @cached_property
    def folders(self) -> frozenset[str]:
        """The folders that contain these files."""
        return frozenset(
            str(above) for path in self.files for above in PurePosixPath(path).parents
        )

    def is_unchanged(self, path: str, place: Path) -> bool:
        """Whether a path is a file of ours, and `place` has its recorded content."""
        if path not in self.files or place.is_symlink() or not place.is_file():
            return False
        digest = self.files[path]
        return digest is ANY or digest_of(place) == digest

    def changed(self, folder: Path) -> list[str]:
        """Return our files in a folder that exist and were changed."""
        return [
            path
            for path in sorted(self.files)
            if os.path.lexists(folder / path) and not self.is_unchanged(path, folder / path)
        ]


@dataclass(frozen=True)
class Move:
    """A file or folder of the user, and its place in the new folder, as relative paths.

    target: begins with BESIDE if the place is in the folder that contains the new folder.
    """

    path: str
    target: str

    def make(self, previous: Path, output: Path) -> None:
        """Move the file or folder from `previous` to its place in `output`."""
        target = place_of(output, self.target)
        target.parent.mkdir(parents=True, exist_ok=True)
        (previous / self.path).rename(target)

    def link(self, previous: Path, output: Path) -> None:
        """Link the file into the new folder before the exchange, so that it is never lost.

        `make` later moves files that cannot be linked, and the user's folders (a repository, a
        build), which may be large: moving a folder takes one step.
        """
        source, target = previous / self.path, place_of(output, self.target)
        try:
            if not is_folder(source):
                target.parent.mkdir(parents=True, exist_ok=True)
                link(source, target)
            elif "/" in self.path or self.path in (APP_FOLDER, NEW_APP_FOLDER):
                shutil.copytree(source, target, symlinks=True, copy_function=link)
        except (OSError, NotImplementedError):  # shutil's error is an OSError
            return


BESIDE = "../"


def place_of(output: Path, target: str) -> Path:
    """Return the place of a move's target."""
    if target.startswith(BESIDE):
        return place_in(output.parent, target.removeprefix(BESIDE))
    return place_in(output, target)


def link(source: str | Path, target: str | Path) -> None:
    """Make a hard link to a file, or to a symbolic link instead of its target."""
    os.link(source, target, follow_symlinks=False)


@dataclass(frozen=True)
class Exchanged:
    """An earlier folder and the folder that replaces it.

    replaced: the folder for changed files of ours, relative to the new folder.
    """

    previous: Path
    output: Path
    written: Written
    replaced: str = REPLACED_FOLDER

    def moves(self, folder: str = "") -> Iterator[Move]:
        """Yield the moves below a folder, in an order in which they are possible."""
        entries = (self.previous / folder).iterdir()
        # Files replaced earlier come first, because more may join them.
        for entry in sorted(entries, key=lambda path: (path.name != self.replaced, path.name)):
            path = entry.relative_to(self.previous).as_posix()
            target = self.output / path
            if is_folder(entry) and (path in self.written.folders or is_folder(target)):
                yield from self.moves(path)
            elif not is_same(entry, target) and not self.written.is_unchanged(path, entry):
                place = self.target(path)
                if not is_same(entry, self.output / place):
                    yield Move(path, place)

    def target(self, path: str) -> str:
        """Return the new place of a user's file."""
        free = path not in self.written.files and not is_taken(self.output, path)
        return path if free else self.aside(path)

    def aside(self, path: str) -> str:
        """Return the path of the file in Replaced/, or a free path if it is not there yet.

        Raises UserError: there is a link in the way, before anything was moved.
        """
        number, target = 1, f"{self.replaced}/{path}"
        roots = (self.previous, self.output)
        while any(os.path.lexists(place_of(root, target)) for root in roots):
            if is_same(self.previous / path, self.output / target):
                break
            number += 1
            target = f"{self.replaced}/{path}.{number}"
        return target


def is_same(entry: Path, target: Path) -> bool:
    """Whether both paths are one file: a link in the new folder to the earlier file."""
    try:
        return os.path.samestat(entry.lstat(), target.lstat())
    except OSError:
        return False


def is_taken(folder: Path, path: str) -> bool:
    """Whether a folder has a file at a path, or at a folder above it."""
    return os.path.lexists(folder / path) or obstacle_above(folder, path) is not None
