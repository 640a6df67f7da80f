"""Every file of a package against its lock and its manifest."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from h2o_pack.bundling import manifest
from h2o_pack.errors import UserError
from h2o_pack.files import lock
from h2o_pack.files.layout import MODEL_FOLDER, MODEL_MANIFEST, VENDOR_FOLDER
from h2o_pack.progress import silent
from h2o_pack.verify.differences import Difference, Verification
from h2o_pack.verify.files import content_of_model, listed, path_problem, regular, text_digest

if TYPE_CHECKING:
    from h2o_pack.bundling.manifest import Manifest
    from h2o_pack.progress import ProgressReporter
    from h2o_pack.verify.differences import Kind, VendorState


def verify(
    package: Path, *, quick: bool = False, say: ProgressReporter = silent
) -> Verification:
    """Compare a package with what h2o-pack recorded when it wrote it.

    Args:
        package: its folder.
        quick: compare sizes of the model's files, without reading them.
        say: told what is read.

    Raises:
        UserError: the folder is not a package of ours, or its lock cannot be read.

    """
    package = package.resolve()
    record = lock.read(package)
    say("comparing generated files")
    found = [*generated(package, record), *added(package, record)]
    size, count = 0, len(record.files)
    try:
        bundled = manifest.read(package)
    except UserError as error:
        path = f"{MODEL_FOLDER}/{MODEL_MANIFEST}"
        found.append(
            Difference("records", path, "other", error.what.removeprefix(MODEL_MANIFEST + " "))
        )
        commit = ""
    else:
        found += records(record, bundled)
        found += content_of_model(package / MODEL_FOLDER, bundled, quick=quick, say=say)
        found += strays(package, bundled)
        commit, size, count = bundled.commit, bundled.size, count + len(bundled.files)
    state, differences = vendored(package, record)
    count += len(record.vendor.files) if record.vendor and state == "checked" else 0
    return Verification(
        package=str(package),
        model=record.model,
        commit=commit,
        quick=quick,
        vendor=state,
        files=count,
        bytes=size,
        differences=(*found, *differences),
    )


def generated(package: Path, record: lock.Lock) -> Iterator[Difference]:
    """Yield the generated files that are not as they were written."""
    for path, digest in sorted(record.files.items()):
        problem = path_problem(path)
        if problem:
            yield Difference("records", path, "other", f"is named in the lock, but {problem}")
            continue
        difference = changed(package, path, digest)
        if difference:
            kind, detail = difference
            yield Difference("generated", path, kind, detail)


def changed(package: Path, path: str, digest: str) -> tuple[Kind, str] | None:
    """Say how a text file differs from its digest, if it does."""
    place = package / path
    if not exists(place):
        return "missing", "is missing"
    if not regular(place):
        return "not a file", "is not a regular file"
    if text_digest(place) != digest:
        return "changed", "has changed since h2o-pack wrote it"
    return None


def added(package: Path, record: lock.Lock) -> Iterator[Difference]:
    """Yield what lies in the folders of generated files and is built with them."""
    inside = (path for path in record.files if "/" in path and not path_problem(path))
    folders = {path.partition("/")[0] for path in inside}
    for folder in sorted(folders):
        for path in listed(package, folder):
            if path not in record.files:
                yield Difference("generated", path, "added", "is not of h2o-pack's making")
    # SwiftPM prefers such a file to Package.swift.
    for place in sorted(package.glob("Package@swift-*.swift")):
        yield Difference("generated", place.name, "added", "replaces Package.swift in a build")


def records(record: lock.Lock, bundled: Manifest) -> Iterator[Difference]:
    """Yield what the manifest says otherwise than the lock."""
    path = f"{MODEL_FOLDER}/{MODEL_MANIFEST}"
    if bundled.model != record.model:
        what = f"is of the model {bundled.model!r}, the lock of {record.model!r}"
        yield Difference("records", path, "other", what)
    elif record.commit and bundled.commit != record.commit:
        what = f"is of the commit {bundled.commit or 'none'}, the lock of {record.commit}"
        yield Difference("records", path, "other", what)


def strays(package: Path, bundled: Manifest) -> Iterator[Difference]:
    """Yield files in Model/ that are not of the model."""
    known = {f"{MODEL_FOLDER}/{file.path}" for file in bundled.files} | {
        f"{MODEL_FOLDER}/{MODEL_MANIFEST}"
    }
    for path in listed(package, MODEL_FOLDER):
        if path not in known:
            loaded = ", and mlx-swift-lm would load it" if path.endswith(".safetensors") else ""
            yield Difference("model", path, "added", f"is not in the manifest{loaded}")


def vendored(package: Path, record: lock.Lock) -> tuple[VendorState, list[Difference]]:
    """Return whether Vendor/ is there, and how its edited files differ."""
    folder = package / VENDOR_FOLDER
    if record.vendor is None:
        if not folder.exists():
            return "not made", []
        what = "is there, but the lock does not say how it was made"
        return "not made", [Difference("vendor", VENDOR_FOLDER, "added", what)]
    if not folder.is_dir():
        what = f"is missing: make it again with `h2o-pack vendor {package}`"
        return "missing", [Difference("vendor", VENDOR_FOLDER, "missing", what)]
    found = []
    for file in record.vendor.files:
        path = f"{VENDOR_FOLDER}/{file.path}"
        problem = path_problem(path)
        if problem:
            what = f"is named in the lock, but {problem}"
            found.append(Difference("records", path, "other", what))
            continue
        difference = changed(package, path, file.after)
        if difference:
            kind, detail = difference
            unedited = kind == "changed" and text_digest(package / path) == file.before
            detail = "is as upstream has it: the edit is gone" if unedited else detail
            found.append(Difference("vendor", path, kind, detail))
    return "checked", found


def exists(path: Path) -> bool:
    """Whether something has a name, even a link to nothing."""
    try:
        return stat.S_IFMT(path.lstat().st_mode) != 0
    except OSError:
        return False
