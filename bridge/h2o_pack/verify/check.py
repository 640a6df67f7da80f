"""Every file of a package against its lock and its manifests."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from h2o_pack.bundling import manifest
from h2o_pack.bundling.manifest import Manifest
from h2o_pack.errors import UserError
from h2o_pack.files import lock
from h2o_pack.files.layout import APP_FOLDER, MODEL_FOLDER, MODEL_MANIFEST
from h2o_pack.files.paths import why_unsafe
from h2o_pack.progress import ProgressReporter, silent
from h2o_pack.verify.differences import Difference, UsersFile, Verification
from h2o_pack.verify.files import compared, content_of_model, listed, text_digest
from h2o_pack.verify.vendor import compare_vendor


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
    # An earlier release recorded the app's files, which are the user's.
    files = {p: d for p, d in sorted(record.files.items()) if not is_of_app(p)}
    generated = (compared(package, "generated", path, digest) for path, digest in files.items())
    found = list(filter(None, generated))
    users = [*added(package, files), *of_app(package, record)]
    commits, size, count = [], 0, len(files)
    for model in record.models:
        try:
            bundled = manifest.read(package, model.folder)
        except UserError as error:
            path = f"{model.folder}/{MODEL_MANIFEST}"
            what = error.what.removeprefix(MODEL_MANIFEST + " ")
            found.append(Difference("records", path, "other", what))
            commits.append("")
            continue
        found += records(model, bundled)
        found += content_of_model(package, model.folder, bundled, quick=quick, say=say)
        if record.options.get("download"):
            found += pieces(package, bundled, quick=quick, say=say)
        users += strays(package, model.folder, bundled)
        commits.append(bundled.commit)
        size, count = size + bundled.size, count + len(bundled.files)
    users += beside_models(package, record)
    say("comparing Vendor")
    vendor = compare_vendor(package, record)
    return Verification(
        package=str(package),
        model=record.model,
        commit=commits[0],
        quick=quick,
        vendor=vendor.state,
        files=count + vendor.files,
        bytes=size,
        differences=(*found, *vendor.differences),
        users=(*users, *vendor.users),
    )


def is_of_app(path: str) -> bool:
    """Whether a path of a package is in its app."""
    return path.startswith(f"{APP_FOLDER}/")


def added(package: Path, files: Mapping[str, str]) -> Iterator[UsersFile]:
    """Yield what lies in the folders of generated files beside them."""
    folders = {path.partition("/")[0] for path in files if "/" in path and not why_unsafe(path)}
    for folder in sorted(folders):
        for path in listed(package, folder):
            if path not in files:
                built = ", and is built with the package" if path.endswith(".swift") else ""
                yield UsersFile(path, f"is yours{built}")
    for place in sorted(package.glob("Package@swift-*.swift")):
        yield UsersFile(place.name, "is yours, and replaces Package.swift in a build")


def of_app(package: Path, record: lock.Lock) -> Iterator[UsersFile]:
    """Yield the files of the app that are not as they were when they were written."""
    scaffold = record.app or {}
    for path in listed(package, APP_FOLDER):
        digest = scaffold.get(path.removeprefix(f"{APP_FOLDER}/"))
        if digest is None:
            yield UsersFile(path, "is yours")
        elif text_digest(package / path) != digest:
            yield UsersFile(path, "is yours, and not as it was written")


def records(record: lock.LockedModel, bundled: Manifest) -> Iterator[Difference]:
    """Yield what a model's manifest says otherwise than the lock."""
    path = f"{record.folder}/{MODEL_MANIFEST}"
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


def beside_models(package: Path, record: lock.Lock) -> Iterator[UsersFile]:
    """Yield files in Model/ that are in the folder of none of the models."""
    folders = tuple(f"{model.folder}/" for model in record.models)
    for path in listed(package, MODEL_FOLDER):
        if not path.startswith(folders):
            yield UsersFile(path, "is yours")


def pieces(
    package: Path, bundled: Manifest, *, quick: bool, say: ProgressReporter
) -> Iterator[Difference]:
    """Yield what the app would refuse, piece by piece, though it is as recorded."""
    from h2o_pack.bundling.pieces import digests

    if bundled.piece_size is None:
        path = f"{MODEL_FOLDER}/{MODEL_MANIFEST}"
        what = "has no digests of pieces, without which the app cannot fetch the model"
        yield Difference("records", path, "other", what)
        return
    if quick:
        return
    with say.bar("reading pieces", bundled.size) as advance:
        for file in bundled.files:
            place = package / MODEL_FOLDER / file.path
            if not place.is_file() or place.stat().st_size != file.size:
                continue
            found = tuple(digests(place, bundled.piece_size, advance, threading.Event()))
            if found != file.pieces:
                path = f"{MODEL_FOLDER}/{file.path}"
                yield Difference("model", path, "content", "has pieces of another sha256")


def strays(package: Path, folder: str, bundled: Manifest) -> Iterator[UsersFile]:
    """Yield files in a model's folder that are not of the model."""
    known = {f"{folder}/{file.path}" for file in bundled.files} | {f"{folder}/{MODEL_MANIFEST}"}
    for path in listed(package, folder):
        if path not in known:
            loaded = ", and mlx-swift-lm would load it" if path.endswith(".safetensors") else ""
            yield UsersFile(path, f"is yours{loaded}")
