"""Folders: where packages are made, and where the hub's client keeps models."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from h2o_pack.doctor.finding import Finding, ok, problem, warning
from h2o_pack.doctor.surroundings import Surroundings

GB = 10**9
LEAST_GB = 1
"""A package without weights takes a few MB; its build several hundred."""
ROOM_GB = 10
"""Models that fit on a phone have up to about 5 GB; and a build comes on top."""


def output(machine: Surroundings) -> Finding:
    """Where packages will be made."""
    return room("disk for packages", machine.output, "Free some, or give another --output.")


def hub_cache(machine: Surroundings) -> Finding:
    """Where downloaded models stay."""
    remedy = "Free some (`hf cache delete`), or set HF_HUB_CACHE to a folder on a larger disk."
    folder = cache_folder(machine)
    found = room("disk for models", folder, remedy)
    here, there = existing(machine.output), existing(folder)
    if found.status == "ok" and here and there and here.stat().st_dev != there.stat().st_dev:
        return ok(found.name, f"{found.what}; on another disk than packages, so that models "
                  "are copied and not linked")  # fmt: skip
    return found


def cache_folder(machine: Surroundings) -> Path:
    """Return the hub client's cache, as huggingface_hub finds it from the environment."""
    if given := machine.environment.get("HF_HUB_CACHE"):
        return machine.folder(given)
    return hub_home(machine) / "hub"


def hub_home(machine: Surroundings) -> Path:
    """Return the folder of the hub's client."""
    if given := machine.environment.get("HF_HOME"):
        return machine.folder(given)
    caches = machine.environment.get("XDG_CACHE_HOME")
    return (machine.folder(caches) if caches else machine.home / ".cache") / "huggingface"


def room(name: str, folder: Path, remedy: str) -> Finding:
    """Look at the free space of a folder's disk, and whether it can be written."""
    blocks = name == "disk for packages"
    there = existing(folder)
    if there is None or not there.is_dir():
        return problem(name, f"{folder} is not a folder", remedy, blocks=blocks)
    if not os.access(there, os.W_OK | os.X_OK):
        return problem(name, f"{there} cannot be written", remedy, blocks=blocks)
    try:
        free = shutil.disk_usage(there).free / GB
    except OSError as error:
        return warning(name, f"{there}: {error.strerror or error}", remedy)
    what = f"{free:,.1f} GB are free in {folder}"
    if free < LEAST_GB:
        return problem(name, f"only {what}", remedy, blocks=blocks)
    if free < ROOM_GB:
        return warning(name, f"{what}: too little for some models", remedy)
    return ok(name, what)


def existing(folder: Path) -> Path | None:
    """Return the folder or the nearest one above it that exists."""
    try:
        return next((each for each in (folder, *folder.parents) if each.exists()), None)
    except OSError:
        return None
