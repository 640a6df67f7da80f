"""Reads a package's files: which there are, and what is in them."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from h2o_pack.bundling.manifest import BundledFile, Manifest
from h2o_pack.files.digests import in_parallel, sha256_of
from h2o_pack.files.layout import VENDOR_FOLDER
from h2o_pack.files.paths import why_unsafe
from h2o_pack.progress import ProgressReporter
from h2o_pack.verify.differences import Difference, Part

IN_XCODES_FOLDERS = ("xcuserdata", "project.xcworkspace")
IN_PACKAGES = (".build", ".swiftpm")


def is_leftover(path: PurePosixPath) -> bool:
    """Whether tools leave such a thing where it is, and no build takes it there."""
    if path.name == ".DS_Store":
        return True
    if path.name in IN_XCODES_FOLDERS:
        return path.parent.suffix in (".xcodeproj", ".xcworkspace")
    return path.name in IN_PACKAGES and path.parent.parent == PurePosixPath(VENDOR_FOLDER)


def content_of_model(
    package: Path, folder: str, bundled: Manifest, *, quick: bool, say: ProgressReporter
) -> Iterator[Difference]:
    """Yield the files in a model's folder that are not as in its manifest, in its order."""

    def check(
        file: BundledFile, told: Callable[[int], None], stop: threading.Event
    ) -> Difference | None:
        return compare(package, folder, file, None if quick else told, stop)

    with say.bar("reading the model", 0 if quick else bundled.size) as advance:
        found = in_parallel(check, bundled.files, advance)
    yield from filter(None, found)


def compare(
    package: Path,
    folder: str,
    file: BundledFile,
    advance: Callable[[int], None] | None,
    stop: threading.Event,
) -> Difference | None:
    """Compare one file of the model; its bytes only when `advance` is told of them."""
    path = f"{folder}/{file.path}"
    place = package / path
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


def compared(package: Path, part: Part, path: str, digest: str) -> Difference | None:
    """Compare a text file with its recorded digest; None where it is the same."""
    problem = why_unsafe(path)
    if problem:
        return Difference("records", path, "other", f"is recorded, but {problem}")
    place = package / path
    if not os.path.lexists(place):
        return Difference(part, path, "missing", "is missing")
    if not regular(place):
        return Difference(part, path, "not a file", "is not a regular file")
    if text_digest(place) != digest:
        return Difference(part, path, "changed", "has changed since h2o-pack wrote it")
    return None


def listed(package: Path, folder: str) -> list[str]:
    """Return the files below a folder of a package, links not followed, tools' own left out."""
    found: list[str] = []
    for above, folders, names in os.walk(package / folder):
        inside = PurePosixPath(Path(above).relative_to(package).as_posix())
        folders[:] = [name for name in folders if not is_leftover(inside / name)]
        linked = [name for name in folders if (Path(above) / name).is_symlink()]
        found += [
            str(inside / name) for name in (*names, *linked) if not is_leftover(inside / name)
        ]
    return sorted(found)


def regular(path: Path) -> bool:
    """Whether a path is a file itself, not a link to one."""
    return path.is_file() and not path.is_symlink()


def text_digest(path: Path) -> str:
    """Return the sha256 of a small file, "" when it cannot be read."""
    try:
        return sha256_of(path)
    except OSError:
        return ""
