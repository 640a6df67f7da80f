"""Devices as they are looked up: each with every number that concerns it."""

from __future__ import annotations

from dataclasses import dataclass
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
from h2o_pack.errors import ExitCode, UserError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping


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
