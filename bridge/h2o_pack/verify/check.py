"""Compares every file of a package with its lock and its manifests."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import msgspec
from rich.console import Console

from h2o_pack.bundling import manifest
from h2o_pack.bundling.manifest import BundledFile, Manifest
from h2o_pack.errors import UserError
from h2o_pack.facts import coexistence, pins
from h2o_pack.files import lock
from h2o_pack.files.digests import in_parallel, pieces, sha256_of
from h2o_pack.files.paths import (
    APP_FOLDER,
    MODEL_FOLDER,
    MODEL_MANIFEST,
    NEW_APP_FOLDER,
    VENDOR_FOLDER,
    VENDOR_MANIFEST,
    obstacle_above,
    why_unsafe,
)
from h2o_pack.progress import BarAdvance, ProgressReporter, silent
from h2o_pack.results import Count, Result, doc
from h2o_pack.sizes import disk_size
from h2o_pack.vendoring.fetch import FailedError, run_git
from h2o_pack.vendoring.vendor import RESOLVED, read_manifest, resolved
from h2o_py.files import read_file

Part = Literal["generated", "model", "vendor", "records"]
Kind = Literal["missing", "changed", "size", "content", "not a file", "other"]
VendorState = Literal["checked", "not made", "missing"]


@dataclass(frozen=True)
class Difference:
    """A difference between a file of the package and its record."""

    part: Annotated[Part, doc("Part of the package.")]
    path: Annotated[str, doc("Path in the package.")]
    kind: Annotated[
        Kind,
        doc(
            "Kind of the difference: a model's file differs in size (not hashed) or content "
            "(sha256), or a generated or edited text has changed."
        ),
    ]
    detail: Annotated[str, doc("The difference in words.")]

    def __str__(self) -> str:
        return f"{self.path} {self.detail}"


@dataclass(frozen=True)
class UsersFile:
    """A file that the user added to the package, or changed in the app."""

    path: Annotated[str, doc("Path in the package.")]
    detail: Annotated[str, doc("What was done to it, and its effect.")]

    def __str__(self) -> str:
        return f"{self.path} {self.detail}"


@dataclass(frozen=True)
class Verification(Result):
    """The differences between a package and its records; with any, the exit code is 1."""

    same: Annotated[bool, doc("Whether there are no differences.")] = field(init=False)
    package: Annotated[str, doc("The package's folder.")]
    model: Annotated[str, doc("Largest model that the lock names.")]
    commit: Annotated[
        str, doc("Commit of this model on the hub, from its manifest; empty for a local model.")
    ]
    quick: Annotated[bool, doc("Whether only the sizes of the model's files were compared.")]
    vendor: Annotated[
        VendorState, doc("Whether the lock records Vendor, and whether it exists.")
    ]
    files: Annotated[Count, doc("Files compared.")]
    bytes: Annotated[Count, doc("Bytes of the model's files, from the manifest.")]
    differences: Annotated[tuple[Difference, ...], doc("All differences.")]
    users: Annotated[
        tuple[UsersFile, ...],
        doc("Files that the user added or changed; with --strict the exit code is then 1."),
    ]

    def __post_init__(self) -> None:
        object.__setattr__(self, "same", not self.differences)


READ_BY_TOOLS = (".build", ".swiftpm", "Plugins", "Snippets", "Sources", "Tests")
"""Folders at a package's root in which SwiftPM and Xcode also read files that the manifest does
not name."""
GIT_FOLDER = ".git"
GIT_LIMIT = 60.0  # seconds
NOT_REGULAR = "is not a regular file"


def compare(
    package: Path, folder: str, file: BundledFile, advance: BarAdvance, *, quick: bool
) -> Difference | None:
    """Compare one file of a model with its manifest; quick: do not read its content."""
    path = f"{folder}/{file.path}"
    place = package / path
    try:
        status = place.lstat()
        if not stat.S_ISREG(status.st_mode) or obstacle_above(package, path):
            return Difference("model", path, "not a file", NOT_REGULAR)
        if status.st_size != file.size:
            what = f"has {status.st_size} bytes instead of {file.size}"
            return Difference("model", path, "size", what)
        if not quick and sha256_of(place, advance) != file.sha256:
            what = "has the right size but a different sha256"
            return Difference("model", path, "content", what)
    except FileNotFoundError:
        return Difference("model", path, "missing", "is missing")
    except OSError as error:
        return Difference("model", path, "other", f"cannot be read: {error.strerror}")
    return None


def compared(package: Path, part: Part, path: str, digest: str) -> Difference | None:
    """Compare a text file with its recorded digest; None if it is the same."""
    problem = why_unsafe(path)
    if problem:
        return Difference("records", path, "other", f"is in the records, but {problem}")
    place = package / path
    if not os.path.lexists(place):
        return Difference(part, path, "missing", "is missing")
    if not regular(place) or obstacle_above(package, path):
        return Difference(part, path, "not a file", NOT_REGULAR)
    if text_digest(place) != digest:
        return Difference(part, path, "changed", "has changed since h2o-pack wrote it")
    return None


def regular(path: Path) -> bool:
    """Whether a path is a file itself, not a link to one."""
    return path.is_file() and not path.is_symlink()


def text_digest(path: Path) -> str | None:
    """Return the sha256 of a small file, None when it cannot be read."""
    try:
        return lock.sha256(read_file(path))
    except OSError:
        return None


@dataclass(frozen=True)
class VendorComparison:
    """The state of Vendor/, its recorded files, and their differences."""

    state: VendorState
    files: frozenset[str] = frozenset()
    differences: tuple[Difference, ...] = ()


def compare_vendor(package: Path, record: lock.Lock) -> VendorComparison:
    """Compare a package's Vendor/ with the records that were written with it."""
    folder = package / VENDOR_FOLDER
    if record.vendor is None:
        return VendorComparison("not made")
    if not folder.is_dir():
        what = f"is missing; make it with `h2o-pack vendor {package}`"
        missing = Difference("vendor", VENDOR_FOLDER, "missing", what)
        return VendorComparison("missing", differences=(missing,))
    edited = {file.path: file for file in record.vendor.files}
    own = f"{VENDOR_FOLDER}/{VENDOR_MANIFEST}"
    differences = []
    recorded: Mapping[str, str] = {path: file.after for path, file in edited.items()}
    differs = compared(package, "records", own, record.vendor.contents)
    if differs is None:
        try:
            recorded = read_manifest(folder).files
        except UserError as error:
            what = error.what.removeprefix(VENDOR_MANIFEST + " ")
            differs = Difference("records", own, "other", what)
    if differs is not None:
        differences.append(differs)
    for path, digest in sorted(recorded.items()):
        difference = compared(package, "vendor", f"{VENDOR_FOLDER}/{path}", digest)
        if difference is None:
            continue
        if (
            difference.kind == "changed"
            and path in edited
            and text_digest(package / difference.path) == edited[path].before
        ):
            lost = "is the original version: the edit of h2o-pack is missing"
            difference = replace(difference, detail=lost)
        differences.append(difference)
    known = {own, *(f"{VENDOR_FOLDER}/{path}" for path in recorded)}
    return VendorComparison("checked", frozenset(known), tuple(differences))


def verify(
    package: Path, *, quick: bool = False, say: ProgressReporter = silent
) -> Verification:
    """Compare a package with the records that h2o-pack wrote with it.

    quick: compare sizes of the model's files, without reading them. Raises UserError: the
    folder is not a package of h2o-pack, or its lock cannot be read.
    """
    package = package.resolve()
    record = lock.read(package)
    say("comparing generated files")
    files = dict(sorted(record.files.items()))
    generated = (compared(package, "generated", path, digest) for path, digest in files.items())
    differences = list(filter(None, generated))
    known = {lock.NAME, *files}
    commits, size, count = [], 0, len(files)
    for model in record.models:
        try:
            bundled = manifest.read(package, model.folder)
        except UserError as error:
            path = f"{model.folder}/{MODEL_MANIFEST}"
            what = error.what.removeprefix(MODEL_MANIFEST + " ")
            differences.append(Difference("records", path, "other", what))
            commits.append("")
            continue
        differences += records(model, bundled)
        check = partial(compare, package, model.folder, quick=quick)
        with say.bar("reading the model", 0 if quick else bundled.size) as advance:
            differences += filter(None, in_parallel(check, bundled.files, advance))
        if record.is_downloaded:
            differences += wrong_pieces(package, bundled, quick=quick, say=say)
        own = (MODEL_MANIFEST, *(file.path for file in bundled.files))
        known |= {f"{model.folder}/{path}" for path in own}
        commits.append(bundled.commit)
        size, count = size + bundled.size, count + len(bundled.files)
    say("comparing Vendor")
    vendor = compare_vendor(package, record)
    return Verification(
        package=str(package),
        model=record.models[0].model,
        commit=commits[0],
        quick=quick,
        vendor=vendor.state,
        files=count + max(0, len(vendor.files) - 1),
        bytes=size,
        differences=(*differences, *vendor.differences),
        users=tuple(users_files(package, record, known | vendor.files)),
    )


def users_files(
    package: Path, record: lock.Lock, known: Collection[str]
) -> Iterator[UsersFile]:
    """Yield what is in the package and in no record, and the app's files that were changed.

    known: the paths that are in a record, except the app's. A folder at the root that contains
    none of them is one entry. In a package that git tracks, git's own folder and what its
    .gitignore files ignore are left out, but nothing in a folder that has recorded files.
    """
    app = record.app or {}
    folders = {str(parent) for path in known for parent in PurePosixPath(path).parents}
    folders |= {APP_FOLDER, NEW_APP_FOLDER}
    left_out = ignored_by_git(package) - folders
    for path in sorted(unrecorded(package, folders)):
        above = map(str, PurePosixPath(path).parents)
        if path in known or path in left_out or not left_out.isdisjoint(above):
            continue
        of_app, _, inside = path.partition("/")
        if of_app in (APP_FOLDER, NEW_APP_FOLDER) and inside in app:
            if text_digest(package / path) != app[inside]:
                yield UsersFile(path, "was changed")
        elif path == RESOLVED:
            yield from of_resolution(package, record)
        else:
            yield UsersFile(path, f"was added{effect(path)}")


def unrecorded(package: Path, folders: Container[str]) -> Iterator[str]:
    """Yield the files of a package; for a folder that is not one of `folders`, only its path.

    Follows no links. Below the folders with recorded files, all files are named.
    """
    for above, inner, names in os.walk(package):
        inside = PurePosixPath(Path(above).relative_to(package).as_posix())
        paths = {name: str(inside / name) for name in inner}
        linked = [name for name in inner if (Path(above) / name).is_symlink()]
        alone = [
            name
            for name, path in paths.items()
            if Path(above) == package
            and path not in folders
            and any((package / path).iterdir())
        ]
        yield from (str(inside / name) for name in {*names, *linked, *alone})
        inner[:] = [name for name in inner if name not in alone]


def effect(path: str) -> str:
    """Say what a build does with an added file."""
    folder, _, inside = path.partition("/")
    name = path.lower()  # some disks ignore case
    if not inside and name.startswith("package@swift-") and name.endswith(".swift"):
        return ", and replaces Package.swift in a build"
    if folder in ("Sources", "Tests") and name.endswith(".swift"):
        return ", and is built with the package"
    if folder == MODEL_FOLDER and name.endswith(".safetensors"):
        return ", and mlx-swift-lm would load it"
    if folder == VENDOR_FOLDER:
        return ", and may be built with the package"
    return ", and SwiftPM or Xcode reads it" if folder in READ_BY_TOOLS else ""


def ignored_by_git(package: Path) -> frozenset[str]:
    """Return what git leaves out of a package that it tracks: its folder, and ignored files.

    Only the .gitignore files count, not the settings of the repository or the user.
    """
    try:
        run_git("-C", str(package), "ls-files", "--error-unmatch", lock.NAME, limit=GIT_LIMIT)
        which = ("--others", "--ignored", "--exclude-per-directory=.gitignore", "--directory")
        listing = run_git("-C", str(package), "ls-files", "-z", *which, limit=GIT_LIMIT)
    except (FailedError, UserError):  # no repository, or no git
        return frozenset()
    return frozenset({GIT_FOLDER, *(path.rstrip("/") for path in listing.split("\0"))})


def of_resolution(package: Path, record: lock.Lock) -> Iterator[UsersFile]:
    """Yield Package.resolved if its pins differ from the pins that came with Vendor."""
    place = package / RESOLVED
    if record.vendor is None or record.vendor.offline:
        yield UsersFile(RESOLVED, "was added, and decides the versions in a build")
        return
    shared = [shared_package.name for shared_package in coexistence().shared]
    try:
        ours = resolved(pins(), shared)
        same = resolution(read_file(place).decode()) == resolution(ours)
    except (OSError, UserError, ValueError, RecursionError):
        same = False
    if not same:
        yield UsersFile(RESOLVED, "names other versions than h2o-pack wrote")


def resolution(text: str) -> list[ResolvedPin]:
    """Return the pins of a Package.resolved; ValueError for another format."""
    return sorted(msgspec.json.decode(text, type=Resolution).pins, key=lambda pin: pin.identity)


class ResolvedPin(msgspec.Struct):
    """The entry of a package in Package.resolved."""

    identity: str
    location: str
    state: dict[str, str]


class Resolution(msgspec.Struct):
    """The content of Package.resolved."""

    pins: list[ResolvedPin]


def records(record: lock.LockedModel, bundled: Manifest) -> Iterator[Difference]:
    """Yield the differences between a model's manifest and the lock."""
    path = f"{record.folder}/{MODEL_MANIFEST}"
    if bundled.model != record.model:
        what = f"names the model {bundled.model!r}, but the lock names {record.model!r}"
        yield Difference("records", path, "other", what)
    elif record.commit and bundled.commit != record.commit:
        what = (
            f"names the commit {bundled.commit or 'none'}, but the lock names {record.commit}"
        )
        yield Difference("records", path, "other", what)
    if bundled.system_prompt and bundled.system_prompt.model != bundled.digest:
        what = "has caches of a system prompt that another model computed"
        yield Difference("records", path, "other", what)


def wrong_pieces(
    package: Path, bundled: Manifest, *, quick: bool, say: ProgressReporter
) -> Iterator[Difference]:
    """Yield files of which a piece has a wrong digest, so that the app refuses them."""
    if bundled.piece_size is None:
        path = f"{MODEL_FOLDER}/{MODEL_MANIFEST}"
        what = "has no digests of pieces, which the app needs to download the model"
        yield Difference("records", path, "other", what)
        return
    if quick:
        return
    with say.bar("reading pieces", bundled.size) as advance:
        for file in bundled.files:
            place = package / MODEL_FOLDER / file.path
            if not place.is_file() or place.stat().st_size != file.size:
                continue
            content = pieces(place, advance, size=bundled.piece_size)
            if tuple(map(lock.sha256, content)) != file.pieces:
                path = f"{MODEL_FOLDER}/{file.path}"
                yield Difference(
                    "model", path, "content", "has a piece with a different sha256"
                )


VENDOR_STATES = {
    "checked": "including Vendor",
    "not made": "no Vendor yet",
    "missing": "Vendor is missing",
}


def print_verification(result: Verification, console: Console) -> None:
    """Show every difference, or the number of compared files."""
    for difference in result.differences:
        console.print(f"{difference.part}: {difference}", markup=False)
    for file in result.users:
        console.print(f"yours: {file}", markup=False)
    size = disk_size(result.bytes)
    how = (
        f"{size} of the model compared only by size"
        if result.quick
        else f"{size} of the model read"
    )
    compared = f"{result.files} files, {how}, {VENDOR_STATES[result.vendor]}"
    count = len(result.differences)
    if not count:
        console.print(f"unchanged: {compared}", markup=False)
        return
    console.print(
        f"{count} difference{'s' if count > 1 else ''} in {compared}. To write the generated "
        "files again, run the `h2o-pack ios` command of this package again.",
        markup=False,
    )
