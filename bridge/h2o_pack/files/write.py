"""The only module that writes packages: completely or not at all, one run at a time.

A package is written under a temporary name and then renamed. The names are fixed, so that the
next run can repair what a killed run leaves.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from h2o_pack.errors import UserError, output_error
from h2o_pack.files import lock
from h2o_pack.files.paths import (
    APP_FOLDER,
    DISK_FULL,
    MODEL_MANIFEST,
    free_space_or,
    place_in,
    reason,
    refuse_full_temporary,
)
from h2o_pack.files.user_files import ANY, Exchanged, Move, Written
from h2o_py.files import sync_folder

Content = str | bytes


def as_bytes(content: Content) -> bytes:
    """Return the bytes of a file, as they are written on every system."""
    return content.encode() if isinstance(content, str) else content


ATTEMPTS = 5  # tries to move the user's files while another program writes to the folder
Keep = Callable[[Path, Path], Iterable[Move]]
"""Finds the files that must move from an earlier folder to the folder that replaces it."""


@contextmanager
def exclusive(output: Path) -> Iterator[None]:
    """Let only one run at a time change `output`; a second run is refused.

    The lock is an empty folder beside `output`, which git does not list. A killed run leaves it
    behind, and the next run takes it over. Folders above it that do not exist are created, and
    deleted if they stay empty.
    """
    refuse_unusable(output)
    output = output.resolve()
    parents = [parent for parent in output.parents if not parent.exists()]
    place = output.parent / f".{output.name}.h2o-lock"
    try:
        for parent in reversed(parents):
            parent.mkdir(exist_ok=True)
        descriptor = locked_folder(place)
    except BlockingIOError as error:
        raise output_error(
            f"another h2o-pack is working on {output}",
            "Wait until it ends, or choose another folder.",
        ) from error
    except OSError as error:
        raise not_writable(output, error) from error
    try:
        yield
    finally:
        for folder in (place, *parents):
            with suppress(OSError):
                folder.rmdir()
        os.close(descriptor)


def locked_folder(place: Path) -> int:
    """Make and lock an empty folder; return its descriptor, which holds the lock while open.

    Raises BlockingIOError: another run holds it. UserError: somebody else made it.
    """
    while True:
        with suppress(FileExistsError):
            place.mkdir(mode=0o700)
        refuse_others(place)
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:  # the run that held it has just deleted it
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), place.lstat()):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextmanager
def in_turn(lock: FileLock, say: Callable[[str], None], holder: str) -> Iterator[None]:
    """Hold a lock; if another program, the `holder`, holds it, say so and wait."""
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        say(f"waiting for another {holder}")
        held = lock.acquire()
    with held:
        yield


@contextmanager
def replacing_package(output: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes the package `output`.

    An existing `output` must be empty or ours. Everything in it that h2o-pack did not write
    (Vendor/, build folders, the user's files) moves to the new folder.
    """
    refuse_foreign(output)

    def keep(previous: Path, new: Path) -> Iterator[Move]:
        return Exchanged(previous, new, written(previous)).moves()

    with replacing(output, keep) as staging:
        yield staging


@contextmanager
def replacing(output: Path, keep: Keep) -> Iterator[Path]:
    """Yield an empty folder, which replaces `output` if the block succeeds.

    `keep` finds the files to move from the earlier folder to the new one. If the block fails or
    is interrupted, nothing changes.
    """
    output = output.resolve()
    refuse_owned_by_others(output)
    exchange = Exchange(output, keep)
    try:
        exchange.recover()
        exchange.new.mkdir()
        yield exchange.new
        exchange.finish()
    except BaseException as error:
        with suppress(OSError):
            exchange.recover()
        if isinstance(error, OSError):
            unfinished = exchange.old.exists() and output.exists()
            raise (
                in_use(output, exchange.old) if unfinished else not_writable(output, error)
            ) from error
        raise


class Exchange:
    """The replacement of one folder by another, under names that a later run can find.

    The names that exist show the state. `new` is being written, and gets links to the files to
    keep. Then `output` becomes `old` and `new` becomes `output`. Files to keep that were not
    linked move from `old` to `output`. Then `old` becomes `done`, which only has to be deleted.
    """

    def __init__(self, output: Path, keep: Keep) -> None:
        self.output, self.keep = output, keep
        self.new, self.old, self.done = (
            output.with_name(f".{output.name}.h2o-{state}") for state in ("new", "old", "done")
        )

    def finish(self) -> None:
        """Put the complete new folder in the place of the earlier folder."""
        sync_folder(self.new)
        if not self.output.exists():
            self.new.rename(self.output)
            sync_folder(self.output.parent)
            return
        for move in tuple(self.keep(self.output, self.new)):
            move.link(self.output, self.new)
        self.output.rename(self.old)
        self.new.rename(self.output)
        sync_folder(self.output.parent)
        self.recover()

    def recover(self) -> None:
        """Finish or undo the exchange; UserError if somebody else made such a folder."""
        for place in (self.new, self.old, self.done):
            refuse_others(place)
        if self.old.exists():
            if self.output.exists():
                self.move_kept_files()
                self.clear(self.done)
                self.old.rename(self.done)
            else:
                self.old.rename(self.output)
        self.clear(self.done)
        self.clear(self.new)

    def move_kept_files(self) -> None:
        """Move the files to keep from the earlier folder to the new one.

        Another program, such as a build, may change both folders meanwhile: files that it
        deleted need not be moved, and the kept files of a folder that it created join that
        folder.
        """
        problem = OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(self.old))
        for _ in range(ATTEMPTS):
            moves = tuple(self.keep(self.old, self.output))
            if not moves:
                return
            for move in moves:
                try:
                    move.make(self.old, self.output)
                except OSError as error:  # the other moves are made anyway
                    problem = error
        raise problem

    def clear(self, folder: Path) -> None:
        """Delete a folder of ours, in which another program may still write."""
        for last in (False,) * (ATTEMPTS - 1) + (True,):
            if folder.exists():
                shutil.rmtree(folder, ignore_errors=not last)


def refuse_others(folder: Path) -> None:
    """Refuse a folder or a link of another user at a place of ours, such as in /tmp."""
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
        return
    raise output_error(
        f"{folder} belongs to another user or is not a folder, but h2o-pack needs a folder "
        "of this name",
        "Delete it, or work in a folder in which only you may write.",
    )


def refuse_owned_by_others(output: Path) -> None:
    """Refuse a folder of another user, because some of its files could not be moved."""
    if output.exists() and output.stat().st_uid != os.geteuid():
        raise output_error(
            f"{output} belongs to another user",
            "Run the command as that user, or give another --output.",
        )


def refuse_unusable(output: Path) -> None:
    """Refuse a folder whose path is not UTF-8: MLX and Swift cannot open files in it.

    Also refuse a link to a path that does not exist: whoever made the link would choose the
    place.
    """
    try:
        os.fsencode(output.resolve()).decode("utf-8")
    except UnicodeDecodeError as error:
        raise output_error(
            f"the path of {output} is not UTF-8, so MLX and Swift cannot open files in it",
            "Give another --output.",
        ) from error
    if output.is_symlink() and not output.exists():
        raise output_error(
            f"{output} is a link to a path that does not exist",
            "Delete it, or give another --output.",
        )


def write_files(folder: Path, files: Mapping[str, Content]) -> None:
    """Write {relative path: content} into a folder."""
    for relative, content in files.items():
        path = place_in(folder, relative)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(as_bytes(content))
        if path.suffix == ".sh":
            path.chmod(0o755)


def refuse_output(output: Path) -> None:
    """Refuse a folder that a package cannot replace."""
    refuse_unusable(output)
    refuse_owned_by_others(output.resolve())
    refuse_foreign(output)


def refuse_foreign(output: Path) -> None:
    """Refuse to replace anything but an empty folder or a package of ours."""
    if not output.exists():
        return
    names = [path.name for path in output.iterdir()] if output.is_dir() else []
    if lock.NAME in names:
        written(output)
        return
    if output.is_dir() and not names:
        return
    what, obstacle = "is not a folder", "the file"
    if names:
        what, obstacle = "has files that h2o-pack did not write", "these files"
    raise output_error(
        f"{output} exists and {what}", f"Give another --output, or move {obstacle} away."
    )


def written(package: Path) -> Written:
    """Return the files that h2o-pack wrote in a package, without Vendor and the user's app."""
    if not (package / lock.NAME).exists():
        return Written({})
    record = lock.read(package)
    own: dict[str, str | None] = {
        path: digest
        for path, digest in record.files.items()
        if not path.startswith(f"{APP_FOLDER}/")
    }
    for model in record.models:
        own |= written_of_model(package, model.folder)
    return Written({**own, lock.NAME: ANY})


def written_of_model(package: Path, folder: str) -> dict[str, str | None]:
    """Return {path: sha256, or ANY} of the files that h2o-pack wrote in a model's folder."""
    own: dict[str, str | None] = {f"{folder}/{MODEL_MANIFEST}": ANY}
    with suppress(FileNotFoundError):
        files = lock.read_record(package / folder / MODEL_MANIFEST, ModelListing).files
        own |= {f"{folder}/{file.path}": file.sha256 for file in files}
    return own


class ListedFile(msgspec.Struct):
    """A file that a model's manifest lists."""

    path: str
    sha256: lock.Digest


class ModelListing(msgspec.Struct):
    """The part of a model's manifest that says which files h2o-pack wrote."""

    files: tuple[ListedFile, ...]


def not_writable(output: Path, error: OSError) -> UserError:
    """Make the error for a disk on which writing fails."""
    if error.errno in DISK_FULL:
        refuse_full_temporary()
    return output_error(
        f"{output} cannot be written: {reason(error)}",
        free_space_or("Give another --output; h2o-pack changed nothing.", error),
        where=str(error.filename) if error.filename else None,
    )


def in_use(output: Path, old: Path) -> UserError:
    """Make the error for a folder to which another program keeps writing."""
    return output_error(
        f"{output} is complete, but lacks some of your files, because another program writes "
        "to them",
        "Stop builds in the package and run the command again: it moves the remaining files.",
        where=str(old),
    )


def replace_file(path: Path, text: str) -> None:
    """Replace a file by another text, completely or not at all."""
    temporary = path.with_name(f".{path.name}.h2o-new")
    try:
        # A killed run leaves such a file, and another person's package may contain such a link.
        temporary.unlink(missing_ok=True)
        # "x" opens no file that exists and follows no link, as open(2) says of O_EXCL.
        with temporary.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise not_writable(path, error) from error
