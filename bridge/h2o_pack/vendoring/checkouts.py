"""Upstream's sources in a folder that the user gives."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import Pin
from h2o_pack.vendoring import git


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
