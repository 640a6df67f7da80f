"""Fills a package's Model/ and writes its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from h2o_pack.architectures.model import Model, ModelFile
from h2o_pack.bundling.manifest import SHA256, BundledFile, Manifest, write
from h2o_pack.bundling.names import check_paths
from h2o_pack.bundling.place import Placing, place_all
from h2o_pack.bundling.space import Need, check_space, existing
from h2o_pack.errors import ExitCode, Problems, UserError
from h2o_pack.files.clone import can_clone
from h2o_pack.files.digests import GIT_ID, git_id
from h2o_pack.files.layout import MODEL_FOLDER
from h2o_pack.files.local_file import local_file
from h2o_pack.progress import ProgressReporter, silent


def bundle(
    model: Model,
    package: Path,
    say: ProgressReporter = silent,
    *,
    earlier: Path | None = None,
    subfolder: str = MODEL_FOLDER,
) -> Manifest:
    """Put `model.files` into a package, fetched first if need be; write the manifest.

    earlier: the package that this one replaces; weights that it has already are taken over.
    subfolder: of both packages, where the model lies.
    Nothing is moved to another subfolder. Every byte is compared with what the hub lists.

    Raises:
        UserError: a path that may not be written, too little room, a file that is not as
            the hub lists it (it is then removed from the hub's cache), or the hub.

    """
    check_paths(file.path for file in model.files)
    earlier = None if earlier is None else earlier / subfolder
    if model.folder is None:
        from h2o_pack.hub.download import download, hub_cache, missing, still_to_come

        cache = hub_cache()
        absent = missing(model)
        check_space(
            [
                Need(cache, still_to_come(model, absent), "the hub's cache"),
                Need(package, copied_bytes(model, cache, package, earlier), "the package"),
            ]
        )
        folder = download(model, absent, say)
    else:
        folder = model.folder
        needed = copied_bytes(model, folder, package, earlier)
        check_space([Need(package, needed, "the package")])
    sources = {file.path: local_file(folder, file.path) for file in model.files}
    files = [
        replace(placed_from(file, folder, earlier), source=sources[file.path])
        for file in model.files
    ]
    target = package / subfolder
    target.mkdir(parents=True)
    with say.bar(f"bundling {model.id}", sum(file.size for file in model.files)) as advance:
        placed = place_all(files, target, advance)
    compare(model, folder, sources, placed)
    manifest = Manifest(model.id, placed, model.commit)
    write(package, manifest, subfolder)
    return manifest


def placed_from(file: ModelFile, folder: Path, earlier: Path | None) -> Placing:
    """Say where a file of a model comes from, before it is fetched.

    earlier: the model's folder in the earlier package.
    """
    before = None if earlier is None else earlier / file.path
    return Placing(file.path, file.size, folder / file.path, file.sha256, before)


def copied_bytes(model: Model, folder: Path, package: Path, earlier: Path | None) -> int:
    """Return the bytes that the package needs room for.

    That is none for what is taken over, or shares its blocks with the original.
    """
    if can_clone(existing(folder), existing(package)):
        return 0
    files = (placed_from(file, folder, earlier) for file in model.files)
    return sum(file.size for file in files if not file.may_be_taken_over)


def compare(
    model: Model,
    folder: Path,
    sources: Mapping[str, Path],
    placed: tuple[BundledFile, ...],
) -> None:
    """Refuse files that are not as `model` says; remove such a file from the hub's cache."""
    problems = Problems()
    for wanted, found in zip(model.files, placed, strict=True):
        with problems.caught():
            blob = sources[wanted.path] if model.commit else None
            difference = differs(wanted, found, blob)
            if not difference:
                continue
            if blob is None:
                raise changed(model, wanted, difference)
            blob.unlink(missing_ok=True)
            (folder / wanted.path).unlink(missing_ok=True)
            raise damaged(model, wanted, difference)
    problems.refuse()


def differs(wanted: ModelFile, found: BundledFile, blob: Path | None) -> str:
    """Say how a file is not what it should be, or nothing.

    blob: the file in the hub's cache. A repository's own blobs there are named by their
    content: by the sha256 of a file in LFS, by git's id of another.
    """
    if found.size != wanted.size:
        return f"has {found.size} bytes instead of {wanted.size}"
    name = blob.name if blob and blob.parent.name == "blobs" else ""
    expected = wanted.sha256 or (name if SHA256.fullmatch(name) else "")
    if expected and found.sha256 != expected:
        return f"has the sha256 {found.sha256[:12]}… instead of {expected[:12]}…"
    if blob and GIT_ID.fullmatch(name) and (git := git_id(blob)) != name:
        return f"has the git id {git[:12]}… instead of {name[:12]}…"
    return ""


def changed(model: Model, file: ModelFile, difference: str) -> UserError:
    """Make the error for a local file that changed since the model was resolved."""
    return UserError(
        f"{file.path} {difference}: it changed while it was bundled",
        where=str(model.folder),
        remedy="Run the command again when nothing writes to the model's folder.",
        code=ExitCode.MODEL,
    )


def damaged(model: Model, file: ModelFile, difference: str) -> UserError:
    """Make the error for a file of the hub's cache that is not as the hub lists it."""
    return UserError(
        f"{file.path} {difference}: the copy in the hub's cache is damaged",
        where=f"{model.id} at {model.commit[:12]}",
        remedy="The damaged copy is removed; run the command again to fetch it anew.",
        code=ExitCode.MODEL,
    )
