"""The archives of caches in files: opened, and removed with their conversation."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from h2o_py._compiled import ext
from h2o_py.errors import H2OFileError, of_archive

Mark = tuple[str, int, str]
"""Where a saved cache's archive ends in its folder: session, segments, chain of digests."""
Failure = tuple[str, str, int]
"""A code of `h2o_py.errors`, the file or folder, and errno or 0."""
Result = TypeVar("Result")


def open_folder(path: str, mark: Mark | None = None) -> ext.SegmentFolder:
    """Make the folder of one layer's archive, or continue it from `mark`.

    Raises:
        H2OFileError: it is open elsewhere, holds another archive, is damaged, or the system
            refuses.

    """
    return unless_failed(ext.open_segment_folder(path, mark))


def delete_archive(folder: str | Path) -> None:
    """Remove the archive in files of one conversation: `store` of its `H2ORecall`.

    Only files of the archive go, and folders that are empty then. It is no error if there is
    none.

    Raises:
        H2OFileError: a cache has it open, or the system refuses. Nothing is removed while
            any layer is open.

    """
    unless_failed(ext.delete_archive(str(folder)))


def delete_stale_archives(root: str | Path, keep: Iterable[str] = ()) -> list[str]:
    """Remove the archives that conversations left which ended without removing theirs.

    Args:
        root: the folder that holds a folder for each conversation.
        keep: names of folders in it that stay: those that a saved cache goes on from.

    Returns:
        The names of the folders that were removed: all others that hold an archive and that
        no cache has open, in this process or another.

    Raises:
        H2OFileError: the system refuses.

    """
    return unless_failed(ext.delete_stale_archives(str(root), list(keep)))


def unless_failed(result: Result | Failure) -> Result:
    """The result, which is no failure.

    Raises:
        H2OFileError: it is one.

    """
    if isinstance(result, tuple):
        code, path, error = result
        raise H2OFileError(code, **of_archive(path, error))
    return result
