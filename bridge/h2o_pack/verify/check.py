"""Every file of a package against its lock and its manifest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from h2o_pack.bundling import manifest
from h2o_pack.bundling.manifest import Manifest
from h2o_pack.errors import UserError
from h2o_pack.files import lock
from h2o_pack.files.layout import MODEL_FOLDER, MODEL_MANIFEST, VENDOR_FOLDER
from h2o_pack.progress import ProgressReporter, silent
from h2o_pack.verify.differences import Difference, Part, VendorState, Verification
from h2o_pack.verify.files import content_of_model, listed, path_problem, regular, text_digest


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
    files = sorted(record.files.items())
    generated = (compared(package, "generated", path, digest) for path, digest in files)
    found = [*filter(None, generated), *added(package, record)]
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


def compared(package: Path, part: Part, path: str, digest: str) -> Difference | None:
    """Compare a text file with its digest in the lock; None where it is the same."""
    problem = path_problem(path)
    if problem:
        return Difference("records", path, "other", f"is named in the lock, but {problem}")
    place = package / path
    if not os.path.lexists(place):
        return Difference(part, path, "missing", "is missing")
    if not regular(place):
        return Difference(part, path, "not a file", "is not a regular file")
    if text_digest(place) != digest:
        return Difference(part, path, "changed", "has changed since h2o-pack wrote it")
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
    if bundled.system_prompt != record.system_prompt:
        what = "has another system prompt than the lock"
        yield Difference("records", path, "other", what)
    elif bundled.system_prompt and bundled.system_prompt.model != bundled.digest:
        what = "has the caches of a system prompt that another model read"
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
        difference = compared(package, "vendor", path, file.after)
        if difference is None:
            continue
        if difference.kind == "changed" and text_digest(package / path) == file.before:
            gone = "is as upstream has it: the edit is gone"
            difference = replace(difference, detail=gone)
        found.append(difference)
    return "checked", found
