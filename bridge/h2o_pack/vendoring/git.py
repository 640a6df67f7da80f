"""The git commands that h2o-pack runs, without prompts, hooks, filters or hangs.

What a fetch brings is known by its commit id, so the user's settings (proxy,
certificates, credentials) may choose the way there. They choose nothing else:
all other commands run without any settings but the ones here.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from h2o_pack.errors import ExitCode, UserError

REF = "refs/heads/pinned"
FETCH_LIMIT = 1800.0
LOCAL_LIMIT = 300.0
ALWAYS = {"GIT_TERMINAL_PROMPT": "0", "GCM_INTERACTIVE": "never", "LC_ALL": "C"}
NO_SETTINGS = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
}
# What git sets for its own children, in a hook for one: another repository than ours.
OF_A_REPOSITORY = frozenset(
    (
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_NAMESPACE"),
        *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE"),
        *("GIT_PREFIX", "GIT_GRAFT_FILE", "GIT_QUARANTINE_PATH", "GIT_REPLACE_REF_BASE"),
    )
)
PROTOCOLS = ("https", "ssh", "file", "http")
SETTINGS = (
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", f"core.attributesFile={os.devnull}"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "gc.auto=0"),
    # Others, such as ext::, start programs.
    *("-c", "protocol.allow=never"),
    *(part for name in PROTOCOLS for part in ("-c", f"protocol.{name}.allow=always")),
    *("-c", "maintenance.auto=false"),
)
ON_THE_WAY = (
    # git compares what arrives with its ids, and refuses malformed objects.
    *("-c", "transfer.fsckObjects=true"),
    *("-c", "fetch.fsckObjects=true"),  # a user's own setting would come before `transfer`
    *("-c", "protocol.version=2"),  # servers give any commit by its id
    *("-c", "http.lowSpeedLimit=1000"),
    *("-c", "http.lowSpeedTime=60"),
)
NOT_GIVEN = ("not our ref", "unadvertised object", "couldn't find remote ref")
VAGUE = "Could not read from remote repository"


class FailedError(Exception):
    """A git command that ended badly; the text is git's own reason."""


def initialize(store: Path) -> tuple[str, ...]:
    """Make an empty repository without a work tree."""
    return "init", "--quiet", "--bare", "--template=", str(store)


def fetch(store: Path, url: str, commit: str) -> tuple[str, ...]:
    """Fetch one commit without its history."""
    options = ("--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules")
    place = (*ON_THE_WAY, f"--git-dir={store}")
    return *place, "fetch", *options, "--", url, f"+{commit}:{REF}"


def pinned(store: Path) -> tuple[str, ...]:
    """Print the commit that was fetched."""
    return f"--git-dir={store}", "rev-parse", "--verify", REF


def listing(store: Path, commit: str) -> tuple[str, ...]:
    """List the tree of a commit."""
    return f"--git-dir={store}", "ls-tree", "-r", "-z", "--full-tree", commit


def check_out(store: Path, commit: str, tree: Path) -> tuple[str, ...]:
    """Write the files of a commit into a folder; needs an index of its own."""
    place = ("-c", "core.bare=false", f"--git-dir={store}", f"--work-tree={tree}")
    return *place, "read-tree", "--reset", "-u", commit


def head(checkout: Path) -> tuple[str, ...]:
    """Print the commit that a clone is at."""
    return "-C", str(checkout), "rev-parse", "HEAD"


def submodules(text: str) -> dict[str, str]:
    """Return {path: commit} of the submodules in a `listing`."""
    entries = (entry.partition("\t") for entry in text.split("\0") if entry)
    modes = {path: about.split() for about, _, path in entries}
    return {path: about[2] for path, about in modes.items() if about[0] == "160000"}


def reason(errors: str) -> str:
    """Return the line of git's messages that says why."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal: ", "error: "))]
    telling = [line for line in fatal or lines if VAGUE not in line]
    for line in (*telling, *lines):
        return line.removeprefix("fatal: ").removeprefix("error: ").rstrip(".")
    return "git gave no reason"


def environment(outer: Mapping[str, str], *, as_user: bool) -> dict[str, str]:
    """Return the environment for a command, with the user's settings of git or without."""
    if as_user:
        return {k: v for k, v in outer.items() if k not in OF_A_REPOSITORY} | ALWAYS
    kept = {k: v for k, v in outer.items() if not k.startswith("GIT_") or k == "GIT_EXEC_PATH"}
    return kept | ALWAYS | NO_SETTINGS


def run(
    arguments: tuple[str, ...],
    *,
    as_user: bool = False,
    limit: float = LOCAL_LIMIT,
    index: Path | None = None,
) -> str:
    """Run git and return what it prints; FailedError when it fails or does not end.

    as_user leaves it the user's settings; limit is in seconds; index is the file
    for a work tree's index where the repository has none.
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
        raise missing() from error
    with process:
        try:
            printed, errors = process.communicate(timeout=limit)
        except BaseException as error:
            # git's own children too: one of them does the waiting.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise FailedError(f"git did not end within {limit:g} seconds") from error
            raise
    if process.returncode != 0:
        raise FailedError(reason(errors))
    return printed


def missing() -> UserError:
    """Make the error for a machine without git."""
    return UserError(
        "git is missing, and upstream's sources are fetched with it",
        where="PATH",
        remedy="Install it (Debian: apt-get install git; macOS: xcode-select --install), "
        "or give --upstream a folder that has the sources.",
        code=ExitCode.TOOL,
    )
