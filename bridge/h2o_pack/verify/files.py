"""Reads a package's files: which there are, and what is in them."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from h2o_pack.bundling.manifest import BundledFile, Manifest
from h2o_pack.bundling.names import check_path
from h2o_pack.errors import UserError
from h2o_pack.files.digests import in_parallel, sha256_of
from h2o_pack.files.layout import MODEL_FOLDER
from h2o_pack.progress import ProgressReporter
from h2o_pack.verify.differences import Difference

# What tools leave beside their input and no build takes.
LEFTOVERS = (".DS_Store", "xcuserdata", "project.xcworkspace", ".swiftpm", ".build")


def content_of_model(
    folder: Path, bundled: Manifest, *, quick: bool, say: ProgressReporter
) -> Iterator[Difference]:
    """Yield the model's files that are not as in the manifest, in its order."""

    def check(
        file: BundledFile, told: Callable[[int], None], stop: threading.Event
    ) -> Difference | None:
        return compare(folder, file, None if quick else told, stop)

    with say.bar("reading the model", 0 if quick else bundled.size) as advance:
        found = in_parallel(check, bundled.files, advance)
    yield from filter(None, found)


def compare(
    folder: Path,
    file: BundledFile,
    advance: Callable[[int], None] | None,
    stop: threading.Event,
) -> Difference | None:
    """Compare one file of the model; its bytes only when `advance` is told of them."""
    place, path = folder / file.path, f"{MODEL_FOLDER}/{file.path}"
    try:
        status = place.lstat()
        if not stat.S_ISREG(status.st_mode):
            return Difference("model", path, "not a file", "is not a regular file")
        if status.st_size != file.size:
            what = f"has {status.st_size} bytes instead of {file.size}"
            return Difference("model", path, "size", what)
        if advance is not None and sha256_of(place, advance, stop) != file.sha256:
            what = "has the right size and other content: its sha256 differs"
            return Difference("model", path, "content", what)
    except FileNotFoundError:
        return Difference("model", path, "missing", "is missing")
    except OSError as error:
        return Difference("model", path, "other", f"cannot be read: {error.strerror}")
    return None


def listed(package: Path, folder: str) -> list[str]:
    """Return the files below a folder of a package, links not followed, tools' own left out."""
    found: list[str] = []
    for above, folders, names in os.walk(package / folder):
        folders[:] = [name for name in folders if name not in LEFTOVERS]
        linked = [name for name in folders if (Path(above) / name).is_symlink()]
        kept = (Path(above) / name for name in (*names, *linked) if name not in LEFTOVERS)
        found.extend(path.relative_to(package).as_posix() for path in kept)
    return sorted(found)


def path_problem(path: str) -> str:
    """Say why a path of a record may not be opened, or nothing."""
    try:
        check_path(path)
    except UserError as error:
        return error.what
    return ""


def regular(path: Path) -> bool:
    """Whether a path is a file itself, not a link to one."""
    return path.is_file() and not path.is_symlink()


def text_digest(path: Path) -> str:
    """Return the sha256 of a small file, "" when it cannot be read."""
    try:
        return sha256_of(path)
    except OSError:
        return ""
