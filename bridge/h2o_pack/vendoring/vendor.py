"""Fills a package's Vendor/ with upstream's sources and our edits of them."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from h2o_pack import assets
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import pins
from h2o_pack.files import lock, write
from h2o_pack.files.layout import VENDOR_FOLDER
from h2o_pack.progress import silent
from h2o_pack.vendoring.checkouts import checked
from h2o_pack.vendoring.edits import EDITS, apply_all, read_edits
from h2o_pack.vendoring.fetch import checked_out
from h2o_pack.vendoring.floating import refuse_floating

if TYPE_CHECKING:
    from collections.abc import Iterator

    from h2o_pack.progress import ProgressReporter
    from h2o_pack.vendoring.edits import AddedFile, EditSet
    from h2o_pack.vendoring.fetch import Origin


def vendor(
    package: Path, upstream: Path | Origin, host: str, say: ProgressReporter = silent
) -> lock.Vendored:
    """Make `package`/Vendor from upstream's sources and record it in the lock.

    upstream is where they are fetched from, or a folder that has mlx-swift with its
    submodules, mlx-swift-lm, and the others that edits.toml copies.
    """
    edits = read_edits(assets.root() / EDITS).for_host(host)
    names = sorted({copy.package for copy in edits.copies})
    wanted = ", ".join(f"{name} {pins()[name].version}" for name in names)
    with write.exclusive(package):
        record = lock.read(package)
        target = package.resolve() / VENDOR_FOLDER
        if target.exists() and record.vendor is None:
            raise UserError(
                f"{target} exists and was not made by h2o-pack",
                remedy="Move it away and run this again.",
                code=ExitCode.OUTPUT,
            )
        with sources(upstream, names, say) as (folder, commits):
            say("copying and editing upstream's sources")
            with write.replacing(target) as staging:
                copy_sources(folder, staging, edits, wanted)
                edited = edit_sources(staging, edits)
                add_files(assets.root(), staging, edits.files)
                refuse_floating(staging)
            vendored = lock.Vendored(host, digest(assets.root()), edited, commits)
            record = dataclasses.replace(record, vendor=vendored)
            write.replace_file(package / lock.NAME, record.to_json())
    return vendored


@contextmanager
def sources(
    upstream: Path | Origin, names: list[str], say: ProgressReporter
) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield a folder with the packages, and {name: commit}."""
    if isinstance(upstream, Path):
        yield upstream, checked(upstream, names)
    else:
        with checked_out(names, upstream, say) as found:
            yield found


def copy_sources(upstream: Path, vendor_folder: Path, edits: EditSet, wanted: str) -> None:
    """Copy what building needs and no more."""
    for copy in edits.copies:
        source = upstream / copy.package / copy.path
        absent = [
            path for path in (source, *(source / n for n in copy.needs)) if not path.exists()
        ]
        if absent:
            raise UserError(
                f"{absent[0].relative_to(upstream)} is missing",
                where=str(upstream),
                remedy=f"--upstream should hold {wanted}, with their submodules.",
                code=ExitCode.USAGE,
            )
        target = vendor_folder / copy.package / copy.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(
                source,
                target,
                ignore=shutil.ignore_patterns(".git"),
                dirs_exist_ok=True,
                copy_function=shutil.copyfile,
            )
        else:
            shutil.copyfile(source, target)


def edit_sources(vendor_folder: Path, edits: EditSet) -> tuple[lock.EditedFile, ...]:
    """Apply the edits, file by file; return each file's sha256 before and after."""
    done = []
    for package, name in sorted({(edit.package, edit.file) for edit in edits.edits}):
        path = vendor_folder / package / name
        mine = [edit for edit in edits.edits if (edit.package, edit.file) == (package, name)]
        before = path.read_bytes() if path.is_file() else b""
        after = apply_all(before.decode(), mine).encode()
        path.write_bytes(after)
        done.append(
            lock.EditedFile(f"{package}/{name}", lock.sha256(before), lock.sha256(after))
        )
    return tuple(done)


def add_files(assets_root: Path, vendor_folder: Path, files: tuple[AddedFile, ...]) -> None:
    """Put our own files where upstream's build finds them."""
    for path, source in added_files(assets_root, files).items():
        target = vendor_folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def added_files(assets_root: Path, files: tuple[AddedFile, ...]) -> dict[str, Path]:
    """Return {path in Vendor/: source} of the files that are ours."""
    found = {}
    for file in files:
        sources = sorted(assets_root.glob(file.source))
        if not sources:
            raise ValueError(f"{EDITS}: nothing matches {file.source}")
        for source in sources:
            name = source.name if file.destination.endswith("/") else ""
            found[f"{file.package}/{file.destination}{name}"] = source
    return found


def current(vendored: lock.Vendored) -> bool:
    """Tell whether Vendor/ was made of the pinned upstream with this release's edits."""
    commits = {pin.name: pin.commit for pin in pins().values()}
    pinned = all(commits.get(name) == commit for name, commit in vendored.commits.items())
    return pinned and bool(vendored.commits) and vendored.edits == digest(assets.root())


def digest(assets_root: Path) -> str:
    """Return one sha256 of the edits and of every file that they add."""
    edits = read_edits(assets_root / EDITS)
    total = hashlib.sha256(repr(edits).encode())
    for path, source in sorted(added_files(assets_root, edits.files).items()):
        total.update(path.encode() + b"\0" + source.read_bytes())
    return total.hexdigest()
