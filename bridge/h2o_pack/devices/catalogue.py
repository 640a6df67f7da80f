"""The devices: those that come with h2o-pack, and a user's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from h2o_pack.devices.facts import (
    Chip,
    Device,
    Memory,
    Number,
)
from h2o_pack.devices.listed import Catalogue
from h2o_pack.devices.reading import check, read_file
from h2o_pack.facts import FOLDER
from h2o_pack.models.catalogue import config_folder

if TYPE_CHECKING:
    pass

ENVIRONMENT = "H2O_PACK_DEVICES"
OWN_FILE = "devices.toml"


def catalogue(own: Path | None = None) -> Catalogue:
    """Read the devices, then the user's own file over them.

    Args:
        own: the user's file; None looks in $H2O_PACK_DEVICES, then for devices.toml in
            h2o-pack's folder of the user's configuration.

    Raises:
        UserError: a file is unreadable, or an entry is wrong; names file and entry.

    """
    files = [FOLDER / "devices.toml", *own_files(own)]
    chips: dict[str, Chip] = {}
    memories: dict[str, Memory] = {}
    devices: dict[tuple[str, str], Device] = {}
    numbers: dict[tuple[str, str], tuple[Number, ...]] = {}
    for file in files:
        read = read_file(file)
        chips.update({each.name: each for each in read["chip"]})
        memories.update({each.name: each for each in read["memory"]})
        devices.update(
            {(one, each.storage): each for each in read["device"] for one in each.identifiers}
        )
        fresh: dict[tuple[str, str], tuple[Number, ...]] = {}
        for number in read["number"]:
            key = (number.of, number.what)
            fresh[key] = (*fresh.get(key, ()), number)
        numbers.update(fresh)
        found = Catalogue(chips, memories, devices, numbers, tuple(map(str, files)))
        check(found, read, str(file))
    return found


def own_files(own: Path | None) -> list[Path]:
    """Find the user's file; one that was named must be there."""
    named = own or (Path(os.environ[ENVIRONMENT]) if os.environ.get(ENVIRONMENT) else None)
    if named:
        return [named]
    usual = config_folder() / OWN_FILE
    return [usual] if usual.is_file() else []
