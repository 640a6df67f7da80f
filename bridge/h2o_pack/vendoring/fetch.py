"""Upstream's repositories at their pinned commits: fetched once, kept in a cache.

The cache holds one repository for each pin, without a work tree, so that no source
is edited by accident. git compares every object with its id when it arrives. A
repository appears in the cache when it is complete, by a rename; a lock lets one
run at a time in, and only the user can open the folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit, urlunsplit

from filelock import FileLock

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import Pin
from h2o_pack.files.paths import reason
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
            folder.chmod(0o700)
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
    """Put the repository of one of the pins into the cache if it is not there."""
    folder = origin.cache / FOLDER
    store = store_of(pin, folder)
    label = f"{pin.name} {pin.version} {pin.commit[:12]}"
    count = f"({wanted.index(pin) + 1} of {len(wanted)})"
    refuse_others(store)
    if holds(store, pin.commit):
        say(f"{label}: in the cache", done=True)
        return
    say(f"fetching {label} {count}")
    with unfinished(folder) as temporary:
        arriving = Path(temporary) / store.name
        try:
            git.run(git.initialize(arriving))
        except git.FailedError as error:
            raise not_usable(folder, error) from error
        command = git.fetch(arriving, address(pin, origin.mirror), pin.commit)
        try:
            git.run(command, as_user=True, limit=git.FETCH_LIMIT)
        except git.FailedError as error:
            raise not_fetched(pin, wanted, origin, str(error)) from error
        if not holds(arriving, pin.commit):
            raise not_fetched(pin, wanted, origin, "another commit arrived")
        if store.exists():
            store.rename(Path(temporary) / "replaced")
        arriving.rename(store)
    say(f"{label}: fetched", done=True)


def holds(store: Path, commit: str) -> bool:
    """Whether a repository has fetched a commit."""
    try:
        return git.run(git.pinned(store)).strip() == commit
    except git.FailedError:
        return False


def check_out(pin: Pin, wanted: tuple[Pin, ...], folder: Path, tree: Path) -> None:
    """Write a pin's files to their place below `tree`, after those of its parent."""
    store, target = store_of(pin, folder), tree / pin.place
    target.mkdir(parents=True, exist_ok=True)
    try:
        submodules = git.submodules(git.run(git.listing(store, pin.commit)))
        command = git.check_out(store, pin.commit, target)
        git.run(command, index=tree / f".{pin.name}.index")
    except git.FailedError as error:
        remedy = "Remove this folder and run this again: it is fetched again."
        raise not_usable(store, error, remedy) from error
    expected = {child.path: child.commit for child in wanted if child.parent == pin.name}
    if submodules != expected:
        raise ValueError(
            f"upstream.toml: {pin.name} has submodules {submodules}, not {expected}"
        )


def store_of(pin: Pin, folder: Path) -> Path:
    """Return where the cache keeps a pin: another commit is another place."""
    return folder / f"{pin.name}-{pin.commit}.git"


def unfinished(folder: Path) -> TemporaryDirectory[str]:
    """Make a folder for what is not complete; one that a killed run left goes later."""
    return TemporaryDirectory(prefix=UNFINISHED, dir=folder, ignore_cleanup_errors=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what killed runs left."""
    for path in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(path, ignore_errors=True)


def address(pin: Pin, mirror: str) -> str:
    """Return where a pin is fetched from: its source, or its path on the mirror."""
    return mirror.rstrip("/") + urlsplit(pin.source).path if mirror else pin.source


def without_password(url: str) -> str:
    """Return an address as it may be shown."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def not_fetched(pin: Pin, wanted: tuple[Pin, ...], origin: Origin, why: str) -> UserError:
    """Make the error for a repository that does not come."""
    refused = any(phrase in why for phrase in git.NOT_GIVEN)
    first = "Check the network and run this again (what has arrived is kept), or name"
    if refused and origin.mirror:
        first = "Bring the mirror up to date, or name"
    elif refused:
        first = "Name"
    other = "another mirror" if origin.mirror else "a mirror"
    clones = ", ".join(f"{root.name} {root.version}" for root in wanted if not root.parent)
    return UserError(
        f"{pin.name} {pin.version}, commit {pin.commit[:12]}, could not be fetched: {why}",
        where=without_password(address(pin, origin.mirror)),
        remedy=f"{first} {other} of https://github.com with --mirror, "
        f"or give --upstream a folder with clones of {clones}, with their submodules.",
        code=ExitCode.NETWORK,
    )


def not_usable(
    folder: Path,
    error: Exception,
    remedy: str = "Free space there, or name another folder with --cache.",
) -> UserError:
    """Make the error for a cache that cannot be read or written."""
    return UserError(
        f"the cache of upstream's sources cannot be used: {reason(error)}",
        where=str(folder),
        remedy=remedy,
        code=ExitCode.OUTPUT,
    )


def checked(upstream: Path, wanted: Iterable[Pin]) -> dict[str, str]:
    """Return {name: commit} of the pins in a folder; "" where git does not know it.

    A clone, or a submodule in one, of another commit than the pin's is refused.
    """
    return {pin.name: checked_commit(upstream / pin.place, pin) for pin in wanted}


def checked_commit(checkout: Path, pin: Pin) -> str:
    """Return a clone's commit; a plain folder is left to the edits' anchors."""
    if not (checkout / ".git").exists():
        return ""
    try:
        commit = git.run(git.head(checkout), as_user=True).strip()
    except git.FailedError:
        return ""
    if commit != pin.commit:
        raise UserError(
            f"{pin.name} is at commit {commit[:12]} instead of {pin.commit[:12]}",
            where=str(checkout),
            remedy=f"Check out {pin.version} there: "
            f"git -C {checkout} checkout --recurse-submodules {pin.commit}",
            code=ExitCode.VERSION,
        )
    return commit
