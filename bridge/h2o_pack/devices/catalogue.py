"""The catalogue of devices: h2o-pack's own and the user's, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta
from rich.console import Console
from rich.text import Text

from h2o_pack.errors import ExitCode, Problems, nearest, nearest_product, usage_error
from h2o_pack.facts import FOLDER
from h2o_pack.files.toml import Blame, read_tables
from h2o_pack.memory.planned_run import backends
from h2o_pack.models.catalogue import users_file
from h2o_pack.printing import caption, plain_table
from h2o_pack.results import Result, doc
from h2o_pack.sizes import gigabytes
from h2o_pack.spec import DevicesSpec

What = Literal["ram", "default", "entitled", "bandwidth"]
Unit = Literal["bytes", "MB", "MiB", "GB", "GiB", "GB/s"]
Kind = Literal["measured", "reported", "estimated"]
UNITS: dict[Unit, float] = {
    "bytes": 1.0,
    "MB": 1e6,
    "MiB": 2.0**20,
    "GB": 1e9,
    "GiB": 2.0**30,
    "GB/s": 1e9,
}
RAM: What = "ram"
DEFAULT: What = "default"
ENTITLED: What = "entitled"
BANDWIDTH: What = "bandwidth"
WHATS = (RAM, DEFAULT, ENTITLED, BANDWIDTH)


@dataclass(frozen=True)
class Chip:
    """A chip; backend: a name in backends.toml."""

    name: str
    backend: str


@dataclass(frozen=True)
class Memory:
    """A class of devices with the same memory, and so the same limits."""

    name: str
    what: str


@dataclass(frozen=True)
class DeviceFacts:
    """Identifiers with one name; storage is given if the RAM of an identifier depends on it."""

    identifiers: Annotated[tuple[str, ...], Meta(min_length=1)]
    name: str
    chip: str
    memory: str
    storage: str = ""


@dataclass(frozen=True)
class Number:
    """A number about a device, a chip or a memory class, with its source."""

    of: Annotated[str, doc("Chip, memory class or identifier to which the number applies.")]
    what: Annotated[What, doc("Which number it is.")]
    value: Annotated[float, Meta(gt=0), doc("Value in its unit.")]
    unit: Annotated[Unit, doc("Unit of the value.")]
    kind: Annotated[Kind, doc("How the number is known.")]
    source: Annotated[str, doc("Source of the number.")]
    on: Annotated[str, doc("Device on which it was measured, if the source names one.")] = ""
    os_version: Annotated[str, doc("Version of the system, if the source names one.")] = ""
    note: Annotated[str, doc("Remark on the number.")] = ""

    def __post_init__(self) -> None:
        """Refuse a wrong unit, and infinity."""
        if (self.unit == "GB/s") != (self.what == BANDWIDTH):
            raise ValueError(f'"{self.unit}" is not a unit of {self.what}')
        if self.value == float("inf"):
            raise ValueError("value is infinite")

    @property
    def amount(self) -> int:
        """The amount in bytes, or in bytes per second."""
        return int(self.value * UNITS[self.unit])


@dataclass(frozen=True)
class DevicesFile:
    """The content of devices.toml, or of a user's file."""

    chip: tuple[Chip, ...] = ()
    memory: tuple[Memory, ...] = ()
    device: tuple[DeviceFacts, ...] = ()
    number: tuple[Number, ...] = ()


@dataclass(frozen=True)
class Device:
    """A device; its amounts are null if unknown."""

    identifier: Annotated[str, doc("Identifier that the system reports.")]
    name: Annotated[str, doc("Name under which the device is sold.")]
    storage: Annotated[
        str, doc("Storage of the device, if the RAM depends on it; otherwise empty.")
    ]
    chip: Annotated[str, doc("Name of the chip.")]
    backend: Annotated[str, doc("Name of its backend in backends.toml.")]
    ram: Annotated[int | None, doc("Bytes of RAM.")]
    limit: Annotated[int | None, doc("Bytes that an app may use.")]
    limit_entitled: Annotated[
        int | None, doc("Bytes that an app with both memory entitlements may use.")
    ]
    bandwidth: Annotated[int | None, doc("Memory bandwidth in bytes per second.")]
    numbers: Annotated[
        tuple[Number, ...], doc("All known numbers; plans use the first of each `what`.")
    ]

    def number(self, what: What) -> Number | None:
        """The number that plans use, the first of its kind; None if unknown."""
        return next((number for number in self.numbers if number.what == what), None)

    @property
    def title(self) -> str:
        """The name, with the storage if the RAM depends on it."""
        return f"{self.name}, {self.storage}" if self.storage else self.name

    @property
    def names(self) -> tuple[str, ...]:
        """The device's identifier, name and title, in lower case."""
        return tuple(name.casefold() for name in (self.identifier, self.name, self.title))


@dataclass(frozen=True, kw_only=True)
class DevicesResult(Result):
    """The devices of the catalogue, and the files that they were read from."""

    files: Annotated[
        tuple[str, ...], doc("Files that were read; the later ones override the earlier ones.")
    ]
    devices: Annotated[tuple[Device, ...], doc("One entry for each identifier and storage.")]


@dataclass(frozen=True)
class Catalogue:
    """The tables of all files; a later entry replaces an earlier entry of the same name."""

    chips: Mapping[str, Chip]
    memories: Mapping[str, Memory]
    devices: Mapping[tuple[str, str], DeviceFacts]
    numbers: Mapping[tuple[str, str], tuple[Number, ...]]
    files: tuple[str, ...]

    def all_devices(self) -> tuple[Device, ...]:
        """Return a device for each identifier and storage, in the order of the files."""
        return tuple(
            self.describe(identifier, facts) for (identifier, _), facts in self.devices.items()
        )

    def describe(self, identifier: str, facts: DeviceFacts) -> Device:
        """Combine a device's numbers: its own, its memory class's, and its chip's."""
        numbers: tuple[Number, ...] = ()
        amounts: dict[str, int] = {}
        for what in WHATS:
            place = facts.chip if what == BANDWIDTH else facts.memory
            own = self.numbers.get((identifier, what)) or self.numbers.get((place, what), ())
            numbers += own
            if own:
                amounts[what] = own[0].amount
        return Device(
            identifier=identifier,
            name=facts.name,
            storage=facts.storage,
            chip=facts.chip,
            backend=self.chips[facts.chip].backend,
            ram=amounts.get(RAM),
            limit=amounts.get(DEFAULT),
            limit_entitled=amounts.get(ENTITLED),
            bandwidth=amounts.get(BANDWIDTH),
            numbers=numbers,
        )

    def find(self, name: str) -> tuple[Device, ...]:
        """Return devices by identifier, name or part of a name; UserError if there is none."""
        every, text = self.all_devices(), name.casefold().strip()
        exact = tuple(device for device in every if text in device.names)
        if exact:
            return exact
        partly = tuple(device for device in every if text and text in device.title.casefold())
        if partly:
            return partly
        names = [device.name for device in every] + [device.identifier for device in every]
        raise usage_error(
            f'no device is called "{name}"',
            f"{nearest_product(name, names)}`h2o-pack devices` lists them. You can add a "
            "device in your own file (--devices).",
        )


ENVIRONMENT = "H2O_PACK_DEVICES"
OWN_FILE = "devices.toml"
BLAME = Blame(
    "Use the format of h2o-pack's own devices.toml; `h2o-pack devices --json` shows its "
    "content.",
    ExitCode.USAGE,
)


@cache
def bundled() -> DevicesFile:
    """Read h2o-pack's own devices."""
    return read_tables(FOLDER / OWN_FILE, DevicesFile, BLAME)


def catalogue(own: Path | None = None) -> Catalogue:
    """Read the devices, and the user's own file, which overrides them.

    own: the user's file; None: $H2O_PACK_DEVICES, or else devices.toml in the user's
    configuration folder, if there is one. Raises UserError, which names file and entry: a file
    is unreadable, or entries are wrong.
    """
    files = {FOLDER / OWN_FILE: bundled()}
    if path := own or users_file(ENVIRONMENT, OWN_FILE):
        files[path] = read_tables(path, DevicesFile, BLAME)
    chips: dict[str, Chip] = {}
    memories: dict[str, Memory] = {}
    devices: dict[tuple[str, str], DeviceFacts] = {}
    numbers: dict[tuple[str, str], tuple[Number, ...]] = {}
    for file, tables in files.items():
        chips |= {chip.name: chip for chip in tables.chip}
        memories |= {memory.name: memory for memory in tables.memory}
        for entry in tables.device:
            devices |= {(name, entry.storage): entry for name in entry.identifiers}
        fresh: dict[tuple[str, str], tuple[Number, ...]] = {}
        for number in tables.number:
            key = (number.of, number.what)
            fresh[key] = (*fresh.get(key, ()), number)
        numbers |= fresh
        merged = Catalogue(chips, memories, devices, numbers, tuple(map(str, files)))
        refuse_unknown_names(merged, tables, file)
    return merged


def named_devices(spec: DevicesSpec, entries: Catalogue | None = None) -> tuple[Device, ...]:
    """Find the named devices; UserError for all unknown names, together."""
    entries = entries or catalogue(spec.file)
    problems = Problems()
    devices: list[Device] = []
    for name in spec.names:
        with problems.caught():
            devices += entries.find(name)
    problems.refuse()
    return tuple(dict.fromkeys(devices))


def refuse_unknown_names(merged: Catalogue, tables: DevicesFile, file: Path) -> None:
    """Refuse chips, memory classes and backends that have no entry."""
    problems = Problems()

    def known(value: str, names: Iterable[str], place: str, key: str) -> None:
        names = list(names)
        if value not in names:
            what = f'{place}: {key} = "{value}" is not one of {", ".join(names)}'
            problems.found.append(BLAME.error(what, file, nearest(value, names)))

    for chip in tables.chip:
        known(chip.backend, backends(), f"[[chip]] {chip.name}", "backend")
    for device in tables.device:
        place = f"[[device]] {device.name}"
        known(device.chip, merged.chips, place, "chip")
        known(device.memory, merged.memories, place, "memory")
    identifiers = [identifier for identifier, _ in merged.devices]
    for number in tables.number:
        place = f"[[number]] {number.what}"
        known(number.of, [*merged.chips, *merged.memories, *identifiers], place, "of")
    problems.refuse()


KNOWN = {"measured": "", "reported": "", "estimated": "~"}


def print_devices(
    devices: tuple[Device, ...], console: Console, *, sources: bool, identifiers: bool
) -> None:
    """Show devices; sources: also the source of each number.

    identifiers: show a row for each identifier, and not one for all of the same name.
    """
    named = ("identifier",) if identifiers else ()
    names = (*named, "device", "chip", "GiB", "limit", "entitled", "GB/s")
    table = plain_table(*names, text=("device", "chip"))
    rows = [
        (*((device.identifier,) if identifiers else ()), *figures(device)) for device in devices
    ]
    for row in dict.fromkeys(rows):
        table.add_row(*row)
    console.print(table)
    caption(
        "GiB of RAM; limit: most memory of an app, in GB; entitled: the same with both "
        "memory entitlements. * from another device of the same memory; ~ estimated."
        + ("" if sources else " `h2o-pack devices NAME` shows identifiers and sources."),
        console,
    )
    if sources:
        print_sources(devices, console)


def figures(device: Device) -> tuple[str, ...]:
    """Return a device's row in the table, without its identifier."""
    memory, bandwidth = device.ram, device.bandwidth
    return (
        device.title,
        device.chip,
        "-" if memory is None else f"{memory / 2**30:g}",
        on_device(device, DEFAULT),
        on_device(device, ENTITLED),
        "-" if bandwidth is None else f"{bandwidth / 1e9:g}",
    )


def on_device(device: Device, what: What) -> str:
    """Return a limit as text, with a mark if nobody measured it on this device."""
    number = device.number(what)
    if number is None or number.kind == "estimated":
        return limit(number)
    is_own = device.name == number.on or device.identifier == number.of
    return limit(number) + ("" if is_own else "*")


def print_sources(devices: tuple[Device, ...], console: Console) -> None:
    """Show every number of some devices, including numbers that plans do not use."""
    for device in devices:
        console.print(f"{device.identifier} {device.title}", style="italic", markup=False)
        table = plain_table("what", "value", "kind", "source", text=("kind", "source"))
        for number in device.numbers:
            texts = (number.source, number.os_version, number.note)
            table.add_row(
                number.what,
                f"{number.value:,.10g} {number.unit}",
                number.kind,
                Text("; ".join(filter(None, texts))),
            )
        console.print(table)


def limit(number: Number | None) -> str:
    """Return a limit in GB as text, with "~" before an estimate; "-" if it is unknown."""
    return "-" if number is None else KNOWN[number.kind] + gigabytes(number.amount)
