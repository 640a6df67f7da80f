"""Upstream's repositories at their pinned commits: downloaded once by git, then cached.

The cache contains one repository for each pin, without a work tree, so that nobody edits a
source by accident. git compares every object with its id when it arrives. A repository is
renamed into the cache when it is complete. A lock allows one run at a time, and only the user
can open the folder.

The commit id identifies the result of a fetch. So the user's settings of git (proxy,
certificates, credentials) may decide how to reach the server, and nothing else: all other
commands run only with the settings in this file, without prompts, hooks and filters, and with a
time limit.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit, urlunsplit

from filelock import FileLock

from h2o_pack.errors import UserError, network_error, output_error, tool_error, version_error
from h2o_pack.facts import Pin
from h2o_pack.files.paths import free_space_or, reason
from h2o_pack.files.write import in_turn, refuse_others
from h2o_pack.progress import ProgressReporter, silent

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
    return own | ALWAYS | NO_SETTINGS


def run_git(
    *arguments: str,
    as_user: bool = False,
    limit: float = LOCAL_LIMIT,
    index: Path | None = None,
) -> str:
    """Run git and return its output; FailedError if it fails or does not end in time.

    as_user: use the user's settings. limit: in seconds. index: the file for a work tree's
    index, if the repository has none.
    """
    variables = environment(os.environ, as_user=as_user)
    if index is not None:
        variables["GIT_INDEX_FILE"] = str(index)
    try:
        process = subprocess.Popen(  # noqa: S603
            ["git", *SETTINGS, *arguments],  # noqa: S607
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
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
            for pin in all_pins:
                obtain(pin, all_pins, origin, say)
            say("unpacking the sources")
            tree = Path(stack.enter_context(unfinished(folder)))
            for pin in all_pins:
                check_out(pin, all_pins, folder, tree)
        except OSError as error:
            raise not_usable(folder, error) from error
        yield tree, {pin.name: pin.commit for pin in all_pins}


def obtain(pin: Pin, all_pins: tuple[Pin, ...], origin: Origin, say: ProgressReporter) -> None:
    """Put the repository of one of the pins into the cache if it is missing."""
    folder = origin.cache / FOLDER
    store = store_of(pin, folder)
    label = f"{pin.name} {pin.version} {pin.commit[:12]}"
    count = f"({all_pins.index(pin) + 1} of {len(all_pins)})"
    refuse_others(store)
    if holds(store, pin.commit):
        say(f"{label}: already downloaded", done=True)
        return
    say(f"downloading {label} {count}")
    with unfinished(folder) as temporary:
        arriving = Path(temporary) / store.name
        try:
            run_git("init", "--quiet", "--bare", "--template=", str(arriving))
        except FailedError as error:
            raise not_usable(folder, error) from error
        place = (*TRANSFER_SETTINGS, f"--git-dir={arriving}", "fetch", *FETCH, "--")
        source = (address(pin, origin.mirror), f"+{pin.commit}:{REF}")
        try:
            run_git(*place, *source, as_user=True, limit=FETCH_LIMIT)
        except FailedError as error:
            raise not_fetched(pin, all_pins, origin, str(error)) from error
        if not holds(arriving, pin.commit):
            raise not_fetched(pin, all_pins, origin, "the server sent another commit")
        if store.exists():
            store.rename(Path(temporary) / "replaced")
        arriving.rename(store)
    say(f"{label}: fetched", done=True)


def holds(store: Path, commit: str) -> bool:
    """Whether a repository contains a commit."""
    try:
        return run_git(f"--git-dir={store}", "rev-parse", "--verify", REF).strip() == commit
    except FailedError:
        return False


def check_out(pin: Pin, all_pins: tuple[Pin, ...], folder: Path, tree: Path) -> None:
    """Write a pin's files to their place below `tree`, after the files of its parent."""
    store, target = store_of(pin, folder), tree / pin.place
    target.mkdir(parents=True, exist_ok=True)
    try:
        listing = run_git(
            f"--git-dir={store}", "ls-tree", "-r", "-z", "--full-tree", pin.commit
        )
        place = ("-c", "core.bare=false", f"--git-dir={store}", f"--work-tree={target}")
        command = (*place, "read-tree", "--reset", "-u", pin.commit)
        run_git(*command, index=tree / f".{pin.name}.index")
    except FailedError as error:
        remedy = "Delete this folder and run the command again, which downloads it again."
        raise not_usable(store, error, remedy) from error
    expected = {child.path: child.commit for child in all_pins if child.parent == pin.name}
    if submodules(listing) != expected:
        raise ValueError(
            f"upstream.toml: {pin.name} has submodules {submodules(listing)}, not {expected}"
        )


def store_of(pin: Pin, folder: Path) -> Path:
    """Return the cache's folder of a pin; each commit has its own."""
    return folder / f"{pin.name}-{pin.commit}.git"


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


def not_usable(
    folder: Path, error: Exception, remedy: str = "Give another folder with --cache."
) -> UserError:
    """Make the error for a cache that cannot be read or written."""
    return output_error(
        f"the cache of downloaded sources cannot be used: {reason(error)}",
        free_space_or(remedy, error),
        where=str(folder),
    )


def checked(upstream: Path, all_pins: Iterable[Pin]) -> dict[str, str]:
    """Return {name: commit} of the clones in a folder, "" without git; refuse other commits."""
    return {pin.name: checked_commit(upstream / pin.place, pin) for pin in all_pins}


def checked_commit(checkout: Path, pin: Pin) -> str:
    """Return a clone's commit; "" without git: only the edits then check the version."""
    if not (checkout / ".git").exists():
        return ""
    try:
        commit = run_git("-C", str(checkout), "rev-parse", "HEAD", as_user=True).strip()
    except FailedError:
        return ""
    if commit != pin.commit:
        raise version_error(
            f"{pin.name} is at commit {commit[:12]} instead of {pin.commit[:12]}",
            f"Check out {pin.version} there: "
            f"git -C {checkout} checkout --recurse-submodules {pin.commit}",
            where=str(checkout),
        )
    return commit
