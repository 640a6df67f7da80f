"""Fills a package's Model/ and lists its files in a manifest."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from h2o_pack.bundling.manifest import BundledFile, Manifest, SourceFile, check_paths
from h2o_pack.errors import ExitCode, Problems
from h2o_pack.files.digests import (
    can_clone,
    copy,
    git_id,
    in_parallel,
    pieces,
    sha256_of,
)
from h2o_pack.files.lock import sha256
from h2o_pack.files.paths import (
    ADAPTER,
    ADAPTER_CONFIG,
    GIT_ID,
    MODEL_FOLDER,
    MODEL_MANIFEST,
    SHA256,
    existing,
    obstacle_above,
)
from h2o_pack.model import Model, ModelFile
from h2o_pack.models.adapter import WEIGHTS, Adapter
from h2o_pack.models.files import local_file
from h2o_pack.progress import BarAdvance, ProgressReporter, silent
from h2o_pack.resolved.files import LEFT_OUT, Resolved
from h2o_pack.sizes import disk_size

RESERVE = 64 << 20  # generated sources, manifest, and the file system's own data


@dataclass(frozen=True)
class Need:
    """The space that a purpose needs in a folder; the folder need not exist yet."""

    folder: Path
    size: int
    purpose: str


def check_space(needs: Iterable[Need]) -> None:
    """Raise UserError if a disk has too little space for all needs on it together."""
    disks: dict[int, list[Need]] = {}
    for need in needs:
        disks.setdefault(device(need.folder), []).append(need)
    problems = Problems(code=ExitCode.OUTPUT)
    for together in disks.values():
        occupied = [need for need in together if need.size]
        total = sum(need.size for need in occupied)
        free = shutil.disk_usage(existing(together[0].folder)).free
        if not total or total + RESERVE <= free:
            continue
        purposes = ", ".join(f"{disk_size(need.size)} for {need.purpose}" for need in occupied)
        problems.add(
            f"h2o-pack needs {purposes} and {disk_size(RESERVE)} in reserve, but the disk has "
            f"{disk_size(free)} free",
            f"Free {disk_size(total + RESERVE - free)}, or choose folders on another disk "
            "(--output for the package, HF_HUB_CACHE for the hub's cache).",
            where=str(occupied[0].folder),
        )
    problems.refuse()


def device(folder: Path) -> int:
    """Return the device number of a folder's file system; the folder need not exist yet."""
    return existing(folder).stat().st_dev


TAKEN_OVER = ".safetensors"  # large files; copying the others takes no time


def may_be_taken_over(file: ModelFile, earlier: Path | None) -> bool:
    """Whether only the earlier package uses its file, and its content may be the same.

    earlier: the model's folder in the earlier package; None without one.
    """
    if earlier is None or not file.path.endswith(TAKEN_OVER):
        return False
    try:
        status = (earlier / file.path).lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size == file.size


def linked(
    file: ModelFile, source: Path, earlier: Path | None, target: Path, advance: BarAdvance
) -> str:
    """Link the earlier package's file if its content is the same; return its sha256, or ""."""
    if earlier is None or not may_be_taken_over(file, earlier):
        return ""

    def check(_amount: int) -> None:
        advance(0)  # raises Stopped; the bar advances when the file is linked

    digest = file.sha256 or sha256_of(source, check)
    if sha256_of(earlier / file.path, check) != digest:
        return ""
    try:
        os.link(earlier / file.path, target)
    except OSError:
        return ""
    advance(file.size)
    return digest


PIECE_SIZE = 16 << 20
"""The most bytes that a phone downloads again after an interruption. Pieces are so large that
their transfer takes far longer than the round trip of a request."""


def add_pieces(package: Path, bundled: Manifest, say: ProgressReporter) -> Manifest:
    """Return the manifest of Model/ with the digests of all files' pieces."""
    folder = package / MODEL_FOLDER

    def with_pieces(file: BundledFile, add: BarAdvance) -> BundledFile:
        content = pieces(folder / file.path, add, PIECE_SIZE)
        return replace(file, pieces=tuple(map(sha256, content)))

    with say.bar("hashing pieces", bundled.size) as advance:
        files = tuple(in_parallel(with_pieces, bundled.files, advance))
    return replace(bundled, files=files, piece_size=PIECE_SIZE)


def add_resolved(
    resolved: Resolved,
    package: Path,
    bundled: Manifest,
    prompt_chunk: int,
    subfolder: str = MODEL_FOLDER,
) -> Manifest:
    """Replace a model's own files by those that Python resolved; return the new manifest.

    prompt_chunk: the most tokens of a prompt that the model reads at once.
    """
    folder = package / subfolder
    files = {file.path: file for file in bundled.files}
    for name in LEFT_OUT:
        if files.pop(name, None):
            (folder / name).unlink()
    for name, written in resolved.written.items():
        path = folder / name
        path.unlink(missing_ok=True)
        path.write_bytes(written.content)
        sources = tuple(SourceFile(s, sha256(resolved.read[s])) for s in written.sources)
        files[name] = BundledFile(
            name, len(written.content), sha256(written.content), sources=sources
        )
    return replace(
        bundled,
        files=tuple(files[name] for name in sorted(files)),
        digest="",
        prompt_chunk=prompt_chunk,
        chat=resolved.chat,
    )


def add_adapter(adapter: Adapter, package: Path, bundled: Manifest) -> Manifest:
    """Copy an adapter into a package whose Model/ is complete; return the new manifest."""
    target = package / MODEL_FOLDER
    config = target / ADAPTER_CONFIG
    config.write_text(adapter.to_json(), encoding="utf-8", newline="\n")
    weights = target / ADAPTER
    digest = copy(adapter.folder / WEIGHTS, weights)
    files = (
        *bundled.files,
        BundledFile(ADAPTER_CONFIG, config.stat().st_size, sha256_of(config)),
        BundledFile(ADAPTER, weights.stat().st_size, digest),
    )
    return replace(bundled, files=files, digest="")


def bundle(
    model: Model,
    package: Path,
    say: ProgressReporter = silent,
    *,
    earlier: Path | None = None,
    subfolder: str = MODEL_FOLDER,
) -> Manifest:
    """Put `model.files` into a package, downloaded if necessary; return their manifest.

    earlier: the package that this one replaces; its weights are taken over if they are the
    same. subfolder: the model's folder, in both packages. Every byte is compared with what the
    hub lists. Raises UserError: a path that is not allowed, too little space, a file that
    differs from the hub's listing (it is then removed from the hub's cache), or an error of the
    hub.
    """
    check_paths(file.path for file in model.files)
    if earlier is not None:  # a link would lead to files that are not the package's own
        has_link = obstacle_above(earlier, f"{subfolder}/{MODEL_MANIFEST}")
        earlier = None if has_link else earlier / subfolder
    copies = Need(package, copied_bytes(model, package, earlier), "the package")
    folder = fetched(model, say, copies)
    sources = {file.path: local_file(folder, file.path) for file in model.files}
    target = package / subfolder
    target.mkdir(parents=True)

    def put(file: ModelFile, add: BarAdvance) -> BundledFile:
        source, place = sources[file.path], target / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        digest = linked(file, source, earlier, place, add) or copy(source, place, add)
        return BundledFile(file.path, place.stat().st_size, digest)

    with say.bar(f"bundling {model.id}", sum(file.size for file in model.files)) as advance:
        placed = tuple(in_parallel(put, model.files, advance))
    compare(model, folder, sources, placed)
    return Manifest(model.id, placed, model.commit)


def fetched(model: Model, say: ProgressReporter, *needs: Need) -> Path:
    """Return the folder with a model's files, downloaded if necessary.

    needs: the space that is needed besides that of the download. Raises UserError: too little
    space, or an error of the hub.
    """
    if model.folder is not None:
        check_space(needs)
        return model.folder
    from h2o_pack.hub.download import download, hub_cache, missing, still_to_come

    absent = missing(model)
    check_space([Need(hub_cache(), still_to_come(model, absent), "the hub's cache"), *needs])
    return download(model, absent, say)


def copied_bytes(model: Model, package: Path, earlier: Path | None) -> int:
    """Return the bytes to copy; files that are taken over or share blocks need no space."""
    from huggingface_hub import constants  # this import takes no time

    origin = model.folder or Path(constants.HF_HUB_CACHE)
    if can_clone(existing(origin), existing(package)):
        return 0
    return sum(file.size for file in model.files if not may_be_taken_over(file, earlier))


def compare(
    model: Model,
    folder: Path,
    sources: Mapping[str, Path],
    placed: tuple[BundledFile, ...],
) -> None:
    """Raise UserError for files that differ from `model`; remove them from the hub's cache."""
    problems = Problems()
    for expected, actual in zip(model.files, placed, strict=True):
        blob = sources[expected.path] if model.commit else None
        difference = differs(expected, actual, blob)
        if difference and blob:
            blob.unlink(missing_ok=True)
            (folder / expected.path).unlink(missing_ok=True)
            problems.add(
                f"{expected.path} {difference}: the copy in the hub's cache is damaged",
                "h2o-pack has removed the damaged copy; run the command again to download the "
                "file.",
                where=f"{model.id} at {model.commit[:12]}",
            )
        elif difference:
            problems.add(
                f"{expected.path} {difference}: the file changed while it was copied",
                "Run the command again when no other program writes to the model's folder.",
                where=str(model.folder),
            )
    problems.refuse()


def differs(wanted: ModelFile, actual: BundledFile, blob: Path | None) -> str:
    """Describe how a copied file differs from the wanted file; "" if it does not.

    blob: the file in the hub's cache. The hub lists the sha256 of a file in LFS, and git's id
    of any other file. The cache names blobs after these too.
    """
    if actual.size != wanted.size:
        return f"has {actual.size} bytes instead of {wanted.size}"
    name = blob.name if blob and blob.parent.name == "blobs" else ""
    expected = wanted.sha256 or (name if SHA256.fullmatch(name) else "")
    if expected and actual.sha256 != expected:
        return f"has the sha256 {actual.sha256[:12]}… instead of {expected[:12]}…"
    expected_id = wanted.git_id or (name if GIT_ID.fullmatch(name) else "")
    if blob and expected_id and (git := git_id(blob)) != expected_id:
        return f"has the git id {git[:12]}… instead of {expected_id[:12]}…"
    return ""
