"""The devices: those that come with h2o-pack, and a user's own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from h2o_pack.devices.device import Catalogue
from h2o_pack.devices.facts import Chip, DeviceFacts, DevicesFile, Memory, Number
from h2o_pack.errors import ExitCode, Problems, nearest
from h2o_pack.facts import FOLDER
from h2o_pack.files.toml import Blame, read_tables
from h2o_pack.memory.backends import backends
from h2o_pack.models.catalogue import config_folder

ENVIRONMENT = "H2O_PACK_DEVICES"
OWN_FILE = "devices.toml"
BLAME = Blame(
    "The entries of h2o-pack's own devices.toml are the pattern: `h2o-pack devices --json` "
    "shows their numbers.",
    ExitCode.USAGE,
)


def catalogue(own: Path | None = None) -> Catalogue:
    """Read the devices, then the user's own file over them.

    Args:
        own: the user's file; None looks in $H2O_PACK_DEVICES, then for devices.toml in
            h2o-pack's folder of the user's configuration.

    Raises:
        UserError: a file is unreadable, or entries are wrong; names file and entry.

    """
    files = [FOLDER / "devices.toml", *own_files(own)]
    chips: dict[str, Chip] = {}
    memories: dict[str, Memory] = {}
    devices: dict[tuple[str, str], DeviceFacts] = {}
    numbers: dict[tuple[str, str], tuple[Number, ...]] = {}
    for file in files:
        read = read_tables(file, DevicesFile, BLAME)
        chips.update({each.name: each for each in read.chip})
        memories.update({each.name: each for each in read.memory})
        devices.update(
            {(one, each.storage): each for each in read.device for one in each.identifiers}
        )
        fresh: dict[tuple[str, str], tuple[Number, ...]] = {}
        for number in read.number:
            key = (number.of, number.what)
            fresh[key] = (*fresh.get(key, ()), number)
        numbers.update(fresh)
        found = Catalogue(chips, memories, devices, numbers, tuple(map(str, files)))
        refuse_unknown_names(found, read, file)
    return found


def own_files(own: Path | None) -> list[Path]:
    """Find the user's file; one that was named must be there."""
    named = own or (Path(os.environ[ENVIRONMENT]) if os.environ.get(ENVIRONMENT) else None)
    if named:
        return [named]
    usual = config_folder() / OWN_FILE
    return [usual] if usual.is_file() else []


def refuse_unknown_names(found: Catalogue, read: DevicesFile, file: Path) -> None:
    """Refuse chips, memories and backends that no entry has."""
    problems = Problems()

    def known(value: str, names: Iterable[str], place: str, key: str) -> None:
        names = list(names)
        if value not in names:
            what = f'{place}: {key} = "{value}" is none of {", ".join(names)}'
            problems.found.append(BLAME.error(what, file, nearest(value, names)))

    for chip in read.chip:
        known(chip.backend, backends(), f"[[chip]] {chip.name}", "backend")
    for device in read.device:
        place = f"[[device]] {device.name}"
        known(device.chip, found.chips, place, "chip")
        known(device.memory, found.memories, place, "memory")
    identifiers = [identifier for identifier, _ in found.devices]
    for number in read.number:
        place = f"[[number]] {number.what}"
        known(number.of, [*found.chips, *found.memories, *identifiers], place, "of")
    problems.refuse()
