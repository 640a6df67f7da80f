"""Which paths of a model's files are safe to write and work on Apple's file systems."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from h2o_pack.errors import ExitCode, Problems, UserError
from h2o_pack.files.layout import MODEL_MANIFEST
from h2o_pack.files.paths import why_unsafe

RESERVED = "resources"  # codesign takes such a folder for the bundle's own


def check_paths(paths: Iterable[str]) -> None:
    """Refuse paths that would leave Model/, collide there, or break the app's signing.

    Raises UserError with all that is wrong. APFS compares names without case and
    without regard to how accents are composed, so two names that differ only so are one.
    """
    problems = Problems()
    taken: dict[tuple[str, ...], str] = {(folded(MODEL_MANIFEST),): MODEL_MANIFEST}
    folders: dict[tuple[str, ...], str] = {}
    for path in paths:
        with problems.caught():
            check_path(path)
            key = tuple(folded(part) for part in path.split("/"))
            above = [key[:end] for end in range(1, len(key))]
            other = taken.get(key) or folders.get(key)
            other = other or next((taken[each] for each in above if each in taken), None)
            if other is not None:
                raise refused(path, f"is the same place as {shown(other)} on Apple's disks")
            taken[key] = path
            folders |= dict.fromkeys(above, path)
    problems.refuse()


def check_path(path: str) -> None:
    """Refuse one path by itself."""
    reason = why_unsafe(path)
    if reason is not None:
        raise refused(path, reason)
    if RESERVED in map(folded, path.split("/")[:-1]):
        raise refused(path, "lies in a folder named Resources, which iOS cannot sign")


def folded(name: str) -> str:
    """Return what two names have in common when APFS takes them for one."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())


def shown(path: str) -> str:
    """Write a path so that a terminal shows all of it and nothing else."""
    return ascii(path)[:200]


def refused(path: str, what: str) -> UserError:
    """Make the error for a path."""
    return UserError(
        f"the model's file {shown(path)} {what}",
        remedy="Rename it in a local copy of the model and give that folder as --model.",
        code=ExitCode.MODEL,
    )
