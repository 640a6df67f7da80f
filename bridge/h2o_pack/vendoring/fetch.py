"""Upstream's repositories at their pinned commits: fetched once, kept in a cache.

The cache holds one repository for each pin, without a work tree: nothing in it
can be edited by accident, and every object is compared with its id each time it
is used. One that is not whole is fetched again. A repository appears in the
cache when it is complete, by a rename; a lock lets one run at a time in.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit, urlunsplit

from filelock import FileLock

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import Pin
from h2o_pack.files.local_file import reason
from h2o_pack.files.write import in_turn, refuse_others
from h2o_pack.progress import ProgressReporter, silent
from h2o_pack.vendoring import git

FOLDER = "upstream"
UNFINISHED = ".unfinished-"
LOCK = "lock"


@dataclass(frozen=True)
class Origin:
    """Where upstream's sources come from and where they are kept.

    mirror takes the place of https://github.com in the pins' addresses: an
    address or a folder in which the repositories lie as OWNER/NAME.
    """

    cache: Path
    mirror: str = ""


@contextmanager
def checked_out(
    wanted: tuple[Pin, ...], origin: Origin, say: ProgressReporter = silent
) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield a folder with the repositories of the pins, submodules in place.

    It comes with {name: commit} and is gone afterwards; the cache stays.
    """
    folder = origin.cache / FOLDER
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            refuse_others(folder)
            lock, other = FileLock(folder / LOCK), f"h2o-pack that uses {folder}"
            stack.enter_context(in_turn(lock, say, other))
            remove_unfinished(folder)
            for pin in wanted:
                obtain(pin, wanted, origin, say)
            say("unpacking upstream's sources")
            tree = Path(stack.enter_context(unfinished(folder)))
            for pin in wanted:
                check_out(pin, wanted, folder, tree)
        except OSError as error:
            raise not_usable(folder, error) from error
        yield tree, {pin.name: pin.commit for pin in wanted}


def obtain(pin: Pin, wanted: tuple[Pin, ...], origin: Origin, say: ProgressReporter) -> None:
    """Put the repository of one of the pins into the cache if it is not there, whole."""
    folder = origin.cache / FOLDER
    store = store_of(pin, folder)
    label = f"{pin.name} {pin.version} {pin.commit[:12]}"
    count = f"({wanted.index(pin) + 1} of {len(wanted)})"
    say(f"checking {label} {count}")
    if is_whole(store, pin.commit, folder):
        say(f"{label}: in the cache", done=True)
        return
    damaged = store.exists()
    say(f"fetching {label} {count}")
    with unfinished(folder) as temporary:
        made = Path(temporary) / store.name
        command = git.fetch(made, address(pin, origin.mirror), pin.commit)
        try:
            git.run(git.initialize(made))
        except git.FailedError as error:
            raise not_usable(folder, error) from error
        try:
            git.run(command, as_user=True, limit=git.FETCH_LIMIT)
        except git.FailedError as error:
            raise not_fetched(pin, wanted, origin, str(error)) from error
        if not is_whole(made, pin.commit, folder):
            raise not_fetched(pin, wanted, origin, "what arrived is not what its ids say")
        if damaged:
            store.rename(Path(temporary) / "damaged")
        made.rename(store)
    again = " again: the one in the cache was damaged" if damaged else ""
    say(f"{label}: fetched{again}", done=True)


def is_whole(store: Path, commit: str, folder: Path) -> bool:
    """Whether a store is ours and has all of `commit`, as its ids say."""
    if store.is_symlink() or not store.is_dir() or store.stat().st_uid != os.geteuid():
        return False
    try:
        with viewed(store, commit, folder) as view:
            view.check()
    except git.FailedError:
        return False
    return True


@contextmanager
def viewed(store: Path, commit: str, folder: Path) -> Iterator[git.View]:
    """Yield a view of a store, whose own files are in `folder` meanwhile."""
    with unfinished(folder) as place:
        yield git.View.make(store, commit, Path(place))


def check_out(pin: Pin, wanted: tuple[Pin, ...], folder: Path, tree: Path) -> None:
    """Write a pin's files to their place below `tree`, after those of its parent."""
    store, target = store_of(pin, folder), tree / pin.place
    target.mkdir(parents=True, exist_ok=True)
    try:
        with viewed(store, pin.commit, folder) as view:
            found = git.submodules(view.listing())
            view.check_out(target, tree / f".{pin.name}.index")
    except git.FailedError as error:
        raise not_usable(folder, error) from error
    expected = {each.path: each.commit for each in wanted if each.parent == pin.name}
    if found != expected:
        raise ValueError(f"upstream.toml: {pin.name} has submodules {found}, not {expected}")


def store_of(pin: Pin, folder: Path) -> Path:
    """Return where the cache keeps a pin: another commit is another place."""
    return folder / f"{pin.name}-{pin.commit}.git"


def unfinished(folder: Path) -> TemporaryDirectory[str]:
    """Make a folder for what is not complete; one that a killed run left goes later."""
    return TemporaryDirectory(prefix=UNFINISHED, dir=folder, ignore_cleanup_errors=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what killed runs left."""
    for each in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(each, ignore_errors=True)


def address(pin: Pin, mirror: str) -> str:
    """Return where a pin is fetched from: its source, or its path on the mirror."""
    return mirror.rstrip("/") + urlsplit(pin.source).path if mirror else pin.source


def without_password(url: str) -> str:
    """Return an address as it may be shown."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def not_fetched(pin: Pin, wanted: tuple[Pin, ...], origin: Origin, why: str) -> UserError:
    """Make the error for a repository that does not come."""
    given = any(each in why for each in git.NOT_GIVEN)
    first = "Check the network and run this again (what has arrived is kept), or name"
    if given and origin.mirror:
        first = "Bring the mirror up to date, or name"
    elif given:
        first = "Name"
    other = "another mirror" if origin.mirror else "a mirror"
    clones = ", ".join(f"{each.name} {each.version}" for each in wanted if not each.parent)
    return UserError(
        f"{pin.name} {pin.version}, commit {pin.commit[:12]}, could not be fetched: {why}",
        where=without_password(address(pin, origin.mirror)),
        remedy=f"{first} {other} of https://github.com with --mirror, "
        f"or give --upstream a folder with clones of {clones}, with their submodules.",
        code=ExitCode.NETWORK,
    )


def not_usable(folder: Path, error: Exception) -> UserError:
    """Make the error for a cache on a disk that refuses."""
    return UserError(
        f"the cache of upstream's sources cannot be used: {reason(error)}",
        where=str(folder),
        remedy="Free space there, or name another folder with --cache.",
        code=ExitCode.OUTPUT,
    )
