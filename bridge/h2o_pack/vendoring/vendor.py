"""Fills a package's Vendor/ with upstream's sources and our edits of them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath

from h2o_pack import assets
from h2o_pack.errors import (
    CombinedError,
    Problems,
    UserError,
    output_error,
    usage_error,
    version_error,
)
from h2o_pack.facts import Pin, coexistence, identity, locked_pins, pins, with_submodules
from h2o_pack.files import lock, write
from h2o_pack.files.digests import sha256_of
from h2o_pack.files.paths import REPLACED_FOLDER, VENDOR_FOLDER, VENDOR_MANIFEST, is_folder
from h2o_pack.files.user_files import ANY, BESIDE, Exchanged, Move, Written
from h2o_pack.progress import ProgressReporter, silent
from h2o_pack.vendoring.edits import (
    FOLDER,
    AddedFile,
    CopiedPath,
    EditSet,
    apply_all,
    edits_of,
    guarded_files,
)
from h2o_pack.vendoring.fetch import Origin, checked, checked_out
from h2o_py.files import open_regular, read_file

RESOLVED = "Package.resolved"


def resolved(by_name: Mapping[str, Pin], names: Iterable[str]) -> str:
    """Write the file that makes SwiftPM choose the versions of our pins."""
    entries = [
        {
            "identity": pin.name,
            "kind": "remoteSourceControl",
            "location": pin.source,
            "state": {"revision": pin.commit, "version": pin.version},
        }
        for pin in (by_name[name] for name in sorted(by_name.keys() & set(names)))
    ]
    return json.dumps({"pins": entries, "version": 3}, indent=2) + "\n"


REMOTE = re.compile(r"\.package\(\s*(?:name:[^,]*,\s*)?(?:url|id):\s*\"([^\"]*)\"")


def refuse_floating(vendor_folder: Path, shared: Collection[str]) -> None:
    """Check that manifests depend only on folders and on packages that an app may share.

    The version of another package could change when SwiftPM resolves it again.
    """
    for manifest in sorted(vendor_folder.glob("*/Package*.swift")):
        for address in REMOTE.findall(read_file(manifest).decode()):
            if identity(address) in shared:
                continue
            name = manifest.relative_to(vendor_folder).as_posix()
            raise version_error(
                f'{name} depends on "{address}", which a build would download',
                "Use the sources at the commits that `h2o-pack --version` lists.",
                where=str(manifest),
            )


@dataclass(frozen=True)
class VendorManifest:
    """The manifest of a Vendor folder; files: sha256 of each file by its path in Vendor."""

    files: dict[str, lock.Digest]


def write_manifest(folder: Path) -> str:
    """Write the manifest of a folder that becomes Vendor; return the manifest's sha256."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    files = {path.relative_to(folder).as_posix(): sha256_of(path) for path in paths}
    text = json.dumps({"format": lock.FORMAT, "files": files}, indent=0) + "\n"
    (folder / VENDOR_MANIFEST).write_text(text, encoding="utf-8", newline="\n")
    return lock.sha256(text.encode())


def read_manifest(folder: Path) -> VendorManifest:
    """Read the manifest of a Vendor folder; UserError when it is missing or damaged."""
    path = folder / VENDOR_MANIFEST
    try:
        return lock.read_record(path, VendorManifest)
    except FileNotFoundError as error:
        raise lock.damaged(path, "is missing") from error


def kept_of_vendor(previous: Path, output: Path) -> Iterator[Move]:
    """Find the files that move from an earlier Vendor folder: all, if it has no manifest."""
    aside = f"{BESIDE}{REPLACED_FOLDER}/{VENDOR_FOLDER}"
    try:
        files = read_manifest(previous).files
    except UserError:
        everything = Exchanged(previous, output, Written({}), aside)
        for entry in sorted(previous.iterdir()):
            yield Move(entry.name, everything.aside(entry.name))
        return
    yield from Exchanged(
        previous, output, Written({**files, VENDOR_MANIFEST: ANY}), aside
    ).moves()


def vendor(
    package: Path,
    upstream: Path | Origin,
    host: str,
    say: ProgressReporter = silent,
    *,
    offline: bool = False,
) -> lock.Vendored:
    """Make `package`/Vendor from upstream's sources and record it in the lock.

    upstream: the origin of a download, or a folder with clones of all that edits.toml copies.
    offline: also copy the small libraries that upstream uses, so that SwiftPM downloads
    nothing.
    """
    with write.exclusive(package):
        record = lock.read(package)
        shared = [shared_package.name for shared_package in coexistence().shared]
        edits = edits_of(assets.root()).applying(host, "offline" if offline else "shared")
        names = sorted({copy.package for copy in edits.copies})
        all_pins = with_submodules(names)
        target = package.resolve() / VENDOR_FOLDER
        if os.path.lexists(target) and (record.vendor is None or not is_folder(target)):
            raise output_error(
                f"{target} exists, but h2o-pack did not make it",
                "Move it away and run the command again.",
            )
        with sources(upstream, all_pins, say) as (folder, commits):
            say("copying and editing the sources")
            with write.replacing(target, kept_of_vendor) as staging:
                copy_sources(folder, staging, edits, all_pins)
                edited = edit_sources(staging, edits)
                add_files(assets.root(), staging, edits.files)
                refuse_floating(staging, () if offline else shared)
                contents = write_manifest(staging)
            made_of = digest(assets.root())
            vendored = lock.Vendored(host, made_of, edited, contents, commits, offline=offline)
            record = dataclasses.replace(record, vendor=vendored, upstream=locked_pins())
            write.replace_file(package / lock.NAME, record.to_json())
            if not offline:
                write.replace_file(package / RESOLVED, resolved(pins(), shared))
    return vendored


@contextmanager
def sources(
    upstream: Path | Origin, all_pins: tuple[Pin, ...], say: ProgressReporter
) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield a folder with the packages, and {name: commit}."""
    if isinstance(upstream, Path):
        yield upstream, checked(upstream, all_pins)
    else:
        with checked_out(all_pins, upstream, say) as tree:
            yield tree


def copy_sources(
    upstream: Path, vendor_folder: Path, edits: EditSet, all_pins: tuple[Pin, ...]
) -> None:
    """Copy the files that a build needs, and no others."""
    clones = ", ".join(f"{pin.name} {pin.version}" for pin in all_pins if not pin.parent)
    for copy in edits.copies:
        root = upstream / copy.package
        for name in (*copy.paths, *copy.needs):
            if not (root / name).exists():
                raise usage_error(
                    f"{copy.package}/{name} is missing",
                    f"--upstream must contain clones with their submodules: {clones}.",
                    where=str(upstream),
                )
        for name in copy.paths:
            copy_path(root / name, vendor_folder / (copy.folder or copy.package) / name, copy)


def copy_path(source: Path, target: Path, copy: CopiedPath) -> None:
    """Copy a file, or the needed parts of a folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(
            source,
            target,
            ignore=partial(unwanted, copy),
            dirs_exist_ok=True,
            copy_function=copy_file,
        )
    else:
        copy_file(source, target)


def copy_file(source: Path | str, target: Path | str) -> None:
    """Copy the content of a regular file."""
    with open_regular(Path(source)) as original, Path(target).open("wb") as written:
        shutil.copyfileobj(original, written)


def unwanted(copy: CopiedPath, folder: str, names: list[str]) -> set[str]:
    """Return the names in a folder that are left out."""
    paths = {name: PurePath(folder, name) for name in names}
    return {n for n, path in paths.items() if any(map(path.match, (".git", *copy.without)))}


def edit_sources(vendor_folder: Path, edits: EditSet) -> tuple[lock.EditedFile, ...]:
    """Apply edits and guards, file by file; return each file's sha256 before and after.

    Raises UserError for all anchors and files that are not as expected, together.
    """
    edited = []
    problems = Problems()

    def change(path: Path, changed: Callable[[str], str]) -> None:
        before = read_file(path) if path.is_file() else b""
        after = changed(before.decode()).encode()
        path.write_bytes(after)
        name = path.relative_to(vendor_folder).as_posix()
        edited.append(lock.EditedFile(name, lock.sha256(before), lock.sha256(after)))

    for (package, file), file_edits in edits.by_file().items():
        with problems.caught():
            change(
                vendor_folder / edits.folder(package) / file,
                partial(apply_all, edits=file_edits),
            )
    for guard in edits.guards:
        with problems.caught():
            for path in guarded_files(vendor_folder / edits.folder(guard.package), guard):
                change(path, guard.around)
    if problems.found:
        raise CombinedError(problems.found)
    return tuple(edited)


def add_files(assets_root: Path, vendor_folder: Path, files: tuple[AddedFile, ...]) -> None:
    """Add h2o-pack's own files to the folders of upstream's build."""
    for path, source in added_files(assets_root, files).items():
        target = vendor_folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def added_files(assets_root: Path, files: tuple[AddedFile, ...]) -> dict[str, Path]:
    """Return {path in Vendor/: source} of the files that are ours."""
    paths = {}
    for file in files:
        sources = sorted(assets_root.glob(file.source))
        if not sources:
            raise ValueError(f"{FOLDER}: nothing matches {file.source}")
        for source in sources:
            name = source.name if file.destination.endswith("/") else ""
            paths[f"{file.package}/{file.destination}{name}"] = source
    return paths


def current(vendored: lock.Vendored) -> bool:
    """Whether Vendor/ was made from this release's pins with its edits."""
    commits = {pin.name: pin.commit for pin in pins().values()}
    pinned = all(commits.get(name) == commit for name, commit in vendored.commits.items())
    has_these_edits = vendored.edits == digest(assets.root())
    return pinned and bool(vendored.commits) and has_these_edits


def digest(assets_root: Path) -> str:
    """Return one sha256 of the edits and of every file that they add."""
    edits = edits_of(assets_root)
    total = hashlib.sha256(repr(edits).encode())
    for file in edits.files:
        for path, source in sorted(added_files(assets_root, (file,)).items()):
            total.update(path.encode() + b"\0" + source.read_bytes())
    return total.hexdigest()
