"""The archives of caches in files: opened, and removed with their conversation."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from h2o_py._compiled import ext
from h2o_py.errors import H2OFileError

Mark = tuple[str, int, str]
"""Where a saved cache's archive ends in its folder: session, segments, chain of digests."""
Failure = tuple[str, str, int]
"""A code of `h2o_py.errors`, the file or folder, and errno or 0."""
Result = TypeVar("Result")
_MOST = 2**62  # fits the core's integers


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


def values_of(failure: Failure) -> tuple[str, dict[str, Any]]:
    """Code and values of an error or a warning about an archive in files."""
    code, path, error = failure
    reason = os.strerror(error) if error else "its content is not what was written"
    return code, {"path": path, "reason": reason}


def continued(path: str | None, saved: Mapping[str, Any]) -> ext.SegmentFolder | None:
    """The folder that a saved archive goes on in, if it has one.

    Raises:
        H2OFileError: as `open_folder` does, or what is saved does not say where it ends.

    """
    if path is None:
        return None
    if "files" not in saved:
        return open_folder(path)
    mark = saved["files"]
    kinds = {"session": str, "count": int, "chain": str}
    if not isinstance(mark, dict) or {key: type(each) for key, each in mark.items()} != kinds:
        raise H2OFileError("archive_other", path=path)
    session, count, chain = mark["session"], mark["count"], mark["chain"]
    if not re.fullmatch("[0-9a-f]{32} [0-9a-f]{64}", f"{session} {chain}"):
        raise H2OFileError("archive_other", path=path)
    return open_folder(path, (session, max(-1, min(count, _MOST)), chain))


def saved_mark(mark: Mark | None) -> dict[str, Any]:
    """What a saved archive says of its files: nothing without any."""
    if mark is None:
        return {}
    session, count, chain = mark
    return {"files": {"session": session, "count": count, "chain": chain}}


def unless_failed(result: Result | Failure) -> Result:
    """The result, which is no failure.

    Raises:
        H2OFileError: it is one.

    """
    if isinstance(result, tuple):
        code, values = values_of(result)
        raise H2OFileError(code, **values)
    return result
