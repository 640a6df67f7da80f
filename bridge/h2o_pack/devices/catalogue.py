"""The devices: those that come with h2o-pack, and a user's own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2o_pack.devices.facts import (
    BANDWIDTH,
    DEFAULT,
    ENTITLED,
    RAM,
    WHATS,
    Chip,
    Device,
    Memory,
    Number,
)
from h2o_pack.devices.reading import check, read_file
from h2o_pack.errors import ExitCode, UserError, nearest
from h2o_pack.facts import FOLDER
from h2o_pack.models.catalogue import config_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

ENVIRONMENT = "H2O_PACK_DEVICES"
OWN_FILE = "devices.toml"


@dataclass(frozen=True)
class Listed:
    """One device with all numbers that concern it; the first of a `what` counts."""

    identifier: str
    name: str
    chip: str
    backend: str
    storage: str
    numbers: tuple[Number, ...]

    def number(self, what: str) -> Number | None:
        """The number that plans use; None where nobody has found one."""
        return next((each for each in self.numbers if each.what == what), None)

    def amount(self, what: str) -> int | None:
        """In bytes, or bytes a second."""
        found = self.number(what)
        return None if found is None else int(found.amount)

    @property
    def title(self) -> str:
        """The name, with the storage where that matters."""
        return f"{self.name}, {self.storage}" if self.storage else self.name

    @property
    def names(self) -> tuple[str, ...]:
        """What it is called, in small letters."""
        return tuple(name.casefold() for name in (self.identifier, self.name, self.title))

    def document(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "identifier": self.identifier,
            "name": self.name,
            "storage": self.storage,
            "chip": self.chip,
            "backend": self.backend,
            "ram": self.amount(RAM),
            "limit": self.amount(DEFAULT),
            "limit_entitled": self.amount(ENTITLED),
            "bandwidth": self.amount(BANDWIDTH),
            "numbers": [vars(number) for number in self.numbers],
        }


@dataclass(frozen=True)
class Catalogue:
    """All tables, as read; an entry of a later file replaces one of its name."""

    chips: Mapping[str, Chip]
    memories: Mapping[str, Memory]
    devices: Mapping[tuple[str, str], Device]
    numbers: Mapping[tuple[str, str], tuple[Number, ...]]
    files: tuple[str, ...]

    def listed(self) -> tuple[Listed, ...]:
        """Every identifier and storage, in the order of the files."""
        return tuple(
            self.describe(identifier, device)
            for (identifier, _), device in self.devices.items()
        )

    def describe(self, identifier: str, device: Device) -> Listed:
        """Put a device's numbers together: its own, its memory's, its chip's."""
        found: list[Number] = []
        for what in WHATS:
            places = (identifier, device.chip if what == BANDWIDTH else device.memory)
            own = [self.numbers.get((place, what), ()) for place in places]
            found += next((numbers for numbers in own if numbers), ())
        backend = self.chips[device.chip].backend
        return Listed(
            identifier, device.name, device.chip, backend, device.storage, tuple(found)
        )

    def find(self, name: str) -> tuple[Listed, ...]:
        """Devices by identifier, name or part of a name, whatever the case.

        Raises:
            UserError: there is none.

        """
        every, asked = self.listed(), name.casefold().strip()
        exact = tuple(each for each in every if asked in each.names)
        if exact:
            return exact
        partly = tuple(each for each in every if asked and asked in each.title.casefold())
        if partly:
            return partly
        names = [each.name for each in every] + [each.identifier for each in every]
        raise UserError(
            f'no device is called "{name}"',
            where=", ".join(self.files),
            remedy=f"{nearest(name, names)}`h2o-pack devices` lists them; a file of your own "
            "can add one (--devices).",
            code=ExitCode.USAGE,
        )


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
