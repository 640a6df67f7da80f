"""Devices as they are looked up: each with every number that concerns it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from h2o_pack.devices.facts import (
    BANDWIDTH,
    DEFAULT,
    ENTITLED,
    RAM,
    WHATS,
    Chip,
    DeviceFacts,
    MeasuredMargin,
    Memory,
    Number,
    What,
)
from h2o_pack.errors import ExitCode, UserError, nearest
from h2o_pack.results import Result, doc


@dataclass(frozen=True)
class Device:
    """A device; its amounts are null where nobody has found one."""

    identifier: Annotated[str, doc("As the system gives it.")]
    name: Annotated[str, doc("What the device is sold as.")]
    storage: Annotated[str, doc("Where the RAM depends on it.")]
    chip: Annotated[str, doc("The system on a chip.")]
    backend: Annotated[str, doc("A name in backends.toml.")]
    ram: Annotated[int | None, doc("Bytes of memory.")]
    limit: Annotated[int | None, doc("Bytes that an app may use.")]
    limit_entitled: Annotated[int | None, doc("The same with both memory entitlements.")]
    bandwidth: Annotated[int | None, doc("Bytes per second.")]
    numbers: Annotated[
        tuple[Number, ...], doc("All that is known; plans use the first of each `what`.")
    ]
    margin: Annotated[
        MeasuredMargin | None, doc("Of plans for it; null: its backend's, as no report says.")
    ] = None

    def number(self, what: What) -> Number | None:
        """The number that plans use; None where nobody has found one."""
        return first(self.numbers, what)

    @property
    def title(self) -> str:
        """The name, with the storage where that matters."""
        return f"{self.name}, {self.storage}" if self.storage else self.name

    @property
    def names(self) -> tuple[str, ...]:
        """What it is called, in lower case."""
        return tuple(name.casefold() for name in (self.identifier, self.name, self.title))


def first(numbers: tuple[Number, ...], what: What) -> Number | None:
    """Return the first number of a kind, which is the one that counts."""
    return next((each for each in numbers if each.what == what), None)


@dataclass(frozen=True, kw_only=True)
class DevicesResult(Result):
    """Devices of the catalogue."""

    files: Annotated[
        tuple[str, ...], doc("The files that were read, the last one over the others.")
    ]
    devices: Annotated[tuple[Device, ...], doc("Each identifier and storage.")]


@dataclass(frozen=True)
class Catalogue:
    """All tables, as read; an entry of a later file replaces one of the same name."""

    chips: Mapping[str, Chip]
    memories: Mapping[str, Memory]
    devices: Mapping[tuple[str, str], DeviceFacts]
    numbers: Mapping[tuple[str, str], tuple[Number, ...]]
    files: tuple[str, ...]
    margins: Mapping[str, MeasuredMargin] = field(default_factory=dict)

    def all_devices(self) -> tuple[Device, ...]:
        """Every identifier and storage, in the order of the files."""
        return tuple(
            self.describe(identifier, facts) for (identifier, _), facts in self.devices.items()
        )

    def describe(self, identifier: str, facts: DeviceFacts) -> Device:
        """Put a device's numbers together: its own, its memory's, its chip's."""
        found: tuple[Number, ...] = ()
        for what in WHATS:
            places = (identifier, facts.chip if what == BANDWIDTH else facts.memory)
            own = [self.numbers.get((place, what), ()) for place in places]
            found += next((numbers for numbers in own if numbers), ())

        def amount(what: What) -> int | None:
            number = first(found, what)
            return None if number is None else number.amount

        return Device(
            identifier=identifier,
            name=facts.name,
            storage=facts.storage,
            chip=facts.chip,
            backend=self.chips[facts.chip].backend,
            ram=amount(RAM),
            limit=amount(DEFAULT),
            limit_entitled=amount(ENTITLED),
            bandwidth=amount(BANDWIDTH),
            numbers=found,
            margin=self.margins.get(identifier),
        )

    def find(self, name: str) -> tuple[Device, ...]:
        """Devices by identifier, name or part of a name, whatever the case.

        Raises:
            UserError: there is none.

        """
        every, asked = self.all_devices(), name.casefold().strip()
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
