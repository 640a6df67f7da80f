"""Upstream's repositories at their pinned commits: downloaded once by git, then cached.

The cache contains one file for each pin: git's pack of the commit's objects. Nothing in it is
believed. Each run reads the pack into a new repository, for which git computes the id of every
object from its content, and the sources are those that the pinned commit names. A pack is
renamed into the cache when it is complete. A lock allows one run at a time, and only the user
can open the folder.

The commit id identifies the result of a fetch. So the user's settings of git (proxy,
certificates, credentials) may decide how to reach the server, and nothing else: all other
commands run only with the settings in this file, without prompts, hooks and filters, and with a
time limit.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO
from urllib.parse import urlsplit, urlunsplit

from filelock import FileLock

from h2o_pack.errors import UserError, network_error, output_error, tool_error, version_error
from h2o_pack.facts import Pin
from h2o_pack.files.paths import free_space_or, reason
from h2o_pack.files.write import in_turn, refuse_others
from h2o_pack.progress import ProgressReporter, silent
from h2o_py.files import open_regular

REF = "refs/heads/pinned"
FETCH_LIMIT = 1800.0
LOCAL_LIMIT = 300.0
ALWAYS = {
    # Other protocols, such as ext::, start programs.
    "GIT_ALLOW_PROTOCOL": "https:ssh:file:http",
    "GIT_TERMINAL_PROMPT": "0",
    "GCM_INTERACTIVE": "never",
    "LC_ALL": "C",
}
NO_SETTINGS = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
}
# Variables that git sets for its own children, such as hooks; they name other repositories.
OF_A_REPOSITORY = frozenset(
    (
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_NAMESPACE"),
        *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE"),
        *("GIT_PREFIX", "GIT_GRAFT_FILE", "GIT_QUARANTINE_PATH", "GIT_REPLACE_REF_BASE"),
    )
)
SETTINGS = (
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", f"core.attributesFile={os.devnull}"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
)
FETCH = ("--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules")
"""Options of git that fetch one commit without its history."""
TRANSFER_SETTINGS = (
    # git compares arriving objects with their ids, and refuses malformed ones.
    *("-c", "transfer.fsckObjects=true"),
    *("-c", "fetch.fsckObjects=true"),  # a user's own setting would override `transfer`
    *("-c", "fetch.unpackLimit=1"),  # keep the pack
    *("-c", "protocol.version=2"),  # servers send any commit by its id
    *("-c", "http.lowSpeedLimit=1000"),
    *("-c", "http.lowSpeedTime=60"),
)
NOT_SENT = ("not our ref", "unadvertised object", "couldn't find remote ref")
VAGUE = "Could not read from remote repository"


class FailedError(Exception):
    """A git command that failed; the text is git's own reason."""


def submodules(text: str) -> dict[str, str]:
    """Return {path: commit} of the submodules; text: the output of `git ls-tree -z`."""
    entries = (entry.partition("\t") for entry in text.split("\0") if entry)
    modes = {path: about.split() for about, _, path in entries}
    return {path: about[2] for path, about in modes.items() if about[0] == "160000"}


def reason_of(errors: str) -> str:
    """Return the line of git's messages that states the reason."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal: ", "error: "))]
    specific = [line for line in fatal or lines if VAGUE not in line]
    for line in (*specific, *lines):
        return line.removeprefix("fatal: ").removeprefix("error: ").rstrip(".")
    return "git printed no reason"


def environment(outer: Mapping[str, str], *, as_user: bool) -> dict[str, str]:
    """Return the environment of a command, with or without the user's settings of git."""
    if as_user:
        return {k: v for k, v in outer.items() if k not in OF_A_REPOSITORY} | ALWAYS
    own = {k: v for k, v in outer.items() if not k.startswith("GIT_") or k == "GIT_EXEC_PATH"}
    return own | ALWAYS | NO_SETTINGS | {"GIT_ALLOW_PROTOCOL": "none"}


def run_git(
    *arguments: str,
    as_user: bool = False,
    limit: float = LOCAL_LIMIT,
    source: BinaryIO | int = subprocess.DEVNULL,
) -> str:
    """Run git and return its output; FailedError if it fails or does not end in time.

    as_user: use the user's settings. limit: in seconds. source: the command's input.
    """
    try:
        process = subprocess.Popen(  # noqa: S603
            ["git", *SETTINGS, *arguments],  # noqa: S607
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(os.environ, as_user=as_user),
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except (FileNotFoundError, PermissionError) as error:
        raise tool_error(
            "git, which downloads mlx-swift and mlx-swift-lm, is missing",
            "Install it (Debian: apt-get install git; macOS: xcode-select --install), or "
            "give --upstream a folder with the sources.",
            where="PATH",
        ) from error
    with process:
        try:
            printed, errors = process.communicate(timeout=limit)
        except BaseException as error:
            # End git's own children too: one of them may be waiting for the server.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise FailedError(f"git did not end within {limit:g} seconds") from error
            raise
    if process.returncode != 0:
        raise FailedError(reason_of(errors))
    return printed


FOLDER = "upstream"
UNFINISHED = ".unfinished-"
LOCK = "lock"


@dataclass(frozen=True)
class Origin:
    """The origin of upstream's sources, and the folder of the cache.

    mirror replaces https://github.com in the pins' addresses: an address or a folder that
    contains the repositories as OWNER/NAME.
    """

    cache: Path
    mirror: str = ""


@contextmanager
def checked_out(
    all_pins: tuple[Pin, ...], origin: Origin, say: ProgressReporter = silent
) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield a folder with the repositories of the pins, and {name: commit}; then delete it."""
    folder = origin.cache / FOLDER
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            refuse_others(folder)
            folder.chmod(0o700)
            lock, other = FileLock(folder / LOCK), f"h2o-pack that uses {folder}"
            stack.enter_context(in_turn(lock, say, other))
            for path in folder.glob(f"{UNFINISHED}*"):  # of killed runs
                shutil.rmtree(path, ignore_errors=True)
            work = Path(stack.enter_context(unfinished(folder)))
            repositories = [obtain(pin, all_pins, origin, work, say) for pin in all_pins]
            say("unpacking the sources")
            tree = work / "tree"
            for pin, repository in zip(all_pins, repositories, strict=True):
                check_out(pin, all_pins, repository, tree)
        except OSError as error:
            raise not_usable(folder, error) from error
        yield tree, {pin.name: pin.commit for pin in all_pins}


def obtain(
    pin: Pin, all_pins: tuple[Pin, ...], origin: Origin, work: Path, say: ProgressReporter
) -> Path:
    """Return a new repository in `work` with a pin's commit, from the cache or the server."""
    store = store_of(pin, origin)
    label = f"{pin.name} {pin.version} {pin.commit[:12]}"
    repository = work / f"{pin.name}.git"
    if os.path.lexists(store):
        if unpack(store, repository, pin.commit):
            say(f"{label}: already downloaded", done=True)
            return repository
        shutil.rmtree(repository)
    say(f"downloading {label} ({all_pins.index(pin) + 1} of {len(all_pins)})")
    make_repository(repository)
    place = (*TRANSFER_SETTINGS, f"--git-dir={repository}", "fetch", *FETCH, "--")
    source = (address(pin, origin.mirror), f"+{pin.commit}:{REF}")
    try:
        run_git(*place, *source, as_user=True, limit=FETCH_LIMIT)
    except FailedError as error:
        raise not_fetched(pin, all_pins, origin, str(error)) from error
    packs = tuple(repository.glob("objects/pack/*.pack"))
    if len(packs) != 1 or not has_commit(repository, pin.commit):
        raise not_fetched(pin, all_pins, origin, "the server sent another commit")
    shutil.copyfile(packs[0], work / store.name)
    (work / store.name).replace(store)
    say(f"{label}: fetched", done=True)
    return repository


def unpack(store: Path, repository: Path, commit: str) -> bool:
    """Read a stored pack into a new repository; False if it is not the complete commit."""
    make_repository(repository)
    # The commit's history is not in the pack.
    (repository / "shallow").write_text(f"{commit}\n", "ascii")
    with open_regular(store) as pack:
        if os.fstat(pack.fileno()).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "another user owns it", str(store))
        try:
            # git computes the ids of the objects, and refuses malformed and missing ones.
            run_git(f"--git-dir={repository}", "index-pack", "--strict", "--stdin", source=pack)
        except FailedError:
            return False
    return has_commit(repository, commit)


def make_repository(place: Path) -> None:
    """Make an empty repository with only git's own settings."""
    try:
        run_git("init", "--quiet", "--bare", "--template=", str(place))
    except FailedError as error:
        raise not_usable(place.parent, error) from error


def has_commit(repository: Path, commit: str) -> bool:
    """Whether a repository contains a commit."""
    try:
        run_git(f"--git-dir={repository}", "cat-file", "-e", f"{commit}^{{commit}}")
    except FailedError:
        return False
    return True


def check_out(pin: Pin, all_pins: tuple[Pin, ...], repository: Path, tree: Path) -> None:
    """Write a pin's files to their place below `tree`, after the files of its parent."""
    target = tree / pin.place
    target.mkdir(parents=True, exist_ok=True)
    place = f"--git-dir={repository}"
    try:
        listing = run_git(place, "ls-tree", "-r", "-z", "--full-tree", pin.commit)
        command = ("-c", "core.bare=false", place, f"--work-tree={target}", "read-tree")
        run_git(*command, "--reset", "-u", pin.commit)
    except FailedError as error:
        raise not_usable(repository, error) from error
    expected = {child.path: child.commit for child in all_pins if child.parent == pin.name}
    if submodules(listing) != expected:
        raise ValueError(
            f"upstream.toml: {pin.name} has submodules {submodules(listing)}, not {expected}"
        )


def store_of(pin: Pin, origin: Origin) -> Path:
    """Return the cache's file of a pin; each commit has its own."""
    return origin.cache / FOLDER / f"{pin.name}-{pin.commit}.pack"


def unfinished(folder: Path) -> TemporaryDirectory[str]:
    """Make a temporary folder; later runs delete it if this run is killed."""
    return TemporaryDirectory(prefix=UNFINISHED, dir=folder, ignore_cleanup_errors=True)


def address(pin: Pin, mirror: str) -> str:
    """Return the address of a pin: its source, or its path on the mirror."""
    return mirror.rstrip("/") + urlsplit(pin.source).path if mirror else pin.source


def without_password(url: str) -> str:
    """Return an address without a password, for messages."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def not_fetched(pin: Pin, all_pins: tuple[Pin, ...], origin: Origin, why: str) -> UserError:
    """Make the error for a repository that cannot be downloaded."""
    is_refused = any(phrase in why for phrase in NOT_SENT)
    first = (
        "Check the network and run the command again (it keeps what was downloaded), or give"
    )
    if is_refused and origin.mirror:
        first = "Update the mirror, or give"
    elif is_refused:
        first = "Give"
    other = "another mirror" if origin.mirror else "a mirror"
    clones = ", ".join(f"{root.name} {root.version}" for root in all_pins if not root.parent)
    return network_error(
        f"{pin.name} {pin.version}, commit {pin.commit[:12]}, cannot be downloaded: {why}",
        f"{first} {other} of https://github.com with --mirror, or give --upstream a "
        f"folder with clones of {clones} and their submodules.",
        where=without_password(address(pin, origin.mirror)),
    )


def not_usable(folder: Path, error: Exception) -> UserError:
    """Make the error for a cache that cannot be read or written."""
    where = error.filename if isinstance(error, OSError) and error.filename else folder
    return output_error(
        f"the cache of downloaded sources cannot be used: {reason(error)}",
        free_space_or("Give another folder with --cache.", error),
        where=str(where),
    )


def checked(upstream: Path, all_pins: Iterable[Pin]) -> dict[str, str]:
    """Return {name: commit} of the clones in a folder, "" without git; refuse other commits."""
    return {pin.name: checked_commit(upstream / pin.place, pin) for pin in all_pins}


def checked_commit(checkout: Path, pin: Pin) -> str:
    """Return a clone's commit; "" without git: only the edits then check the version."""
    if not os.path.lexists(checkout / ".git"):
        return ""
    place = ("-C", str(checkout))
    try:
        printed = run_git(*place, "rev-parse", "--show-toplevel", "HEAD", as_user=True)
    except FailedError as error:
        raise without_commit(checkout, pin, str(error)) from error
    top, _, commit = printed.rstrip("\n").rpartition("\n")
    if Path(top).resolve() != checkout.resolve():  # git went on to a folder above
        raise without_commit(checkout, pin, ".git is not a repository")
    if commit != pin.commit:
        raise version_error(
            f"{pin.name} is at commit {commit[:12]} instead of {pin.commit[:12]}",
            f"Check out {pin.version} there: "
            f"git -C {checkout} checkout --recurse-submodules {pin.commit}",
            where=str(checkout),
        )
    return commit


def without_commit(checkout: Path, pin: Pin, why: str) -> UserError:
    """Make the error for a clone of which git cannot say the commit."""
    return version_error(
        f"git cannot say at which commit {pin.name} is: {why}",
        f"Clone {pin.name} {pin.version} again, or leave out --upstream to download it.",
        where=str(checkout),
    )
