"""Checks that the disks have room for a model, before anything is fetched or written."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from h2o_pack.errors import ExitCode, Problems, UserError

RESERVE = 64 << 20  # generated sources, manifest, and what the file system keeps for itself


@dataclass(frozen=True)
class Need:
    """Bytes that a purpose takes below a folder, which need not exist yet."""

    folder: Path
    size: int
    purpose: str


def check_space(needs: Iterable[Need]) -> None:
    """Refuse what does not fit; needs on the same disk are added up."""
    disks: dict[int, list[Need]] = {}
    for need in needs:
        disks.setdefault(device(need.folder), []).append(need)
    problems = Problems()
    for together in disks.values():
        with problems.caught():
            check_disk(together)
    problems.refuse()


def check_disk(needs: list[Need]) -> None:
    """Refuse needs of one disk that it has no room for."""
    wanted = [need for need in needs if need.size]
    total = sum(need.size for need in wanted)
    free = shutil.disk_usage(existing(needs[0].folder)).free
    if not total or total + RESERVE <= free:
        return
    purposes = " and ".join(f"{shown(need.size)} for {need.purpose}" for need in wanted)
    raise UserError(
        f"the disk has {shown(free)} free, and {purposes} are needed",
        where=str(wanted[0].folder),
        remedy=f"Free {shown(total + RESERVE - free)}, or choose folders on another disk "
        "(--output for the package, HF_HUB_CACHE for the hub's cache).",
        code=ExitCode.OUTPUT,
    )


def device(folder: Path) -> int:
    """Return the number of the file system that a folder is or would be on."""
    return existing(folder).stat().st_dev


def existing(folder: Path) -> Path:
    """Return the nearest folder above (or at) a path that exists."""
    absolute = folder.absolute()
    return next(each for each in (absolute, *absolute.parents) if each.exists())


def shown(size: int) -> str:
    """Write bytes in the unit that disks are sold in."""
    return f"{size / 1e9:.2f} GB" if size >= 10**8 else f"{size / 1e6:.1f} MB"
