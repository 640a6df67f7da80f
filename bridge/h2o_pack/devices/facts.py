"""The tables of devices.toml and speed.toml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from h2o_pack.results import doc

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
    """A chip; backend is a name in backends.toml."""

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
    """A number and its source."""

    of: Annotated[str, doc("Chip, memory class or identifier to which the number applies.")]
    what: Annotated[What, doc("Which number it is.")]
    value: Annotated[float, Meta(gt=0), doc("Value in its unit.")]
    unit: Annotated[Unit, doc("Unit of the value.")]
    kind: Annotated[Kind, doc("How the number is known.")]
    source: Annotated[str, doc("Source of the number.")]
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
class Rule:
    """A constant of the speed estimate."""

    name: str
    value: float
    what: str
    source: str
    kind: str


@dataclass(frozen=True)
class PublishedSpeed:
    """A published speed."""

    model: Annotated[str, doc("Model of the catalogue.")]
    identifier: Annotated[str, doc("The device.")]
    tokens_per_second: Annotated[float, doc("Published speed.")]
    source: Annotated[str, doc("Source of the number.")]
    kind: Annotated[str, doc("How the number is known.")]


@dataclass(frozen=True)
class MeasuredMargin:
    """The margin that a device needed, which replaces its backend's margin."""

    identifier: Annotated[str, doc("The device.")]
    margin: Annotated[
        float,
        Meta(ge=0),
        doc(
            "Measured margin as a share of the modelled "
            "bytes; 0 if the modelled bytes were enough."
        ),
    ]
    planned: Annotated[int, Meta(gt=0), doc("Bytes that were modelled.")]
    seen: Annotated[int, doc("Bytes that MLX had allocated instead at its peak.")]
    source: Annotated[str, doc("The report.")]
    measured: Annotated[bool, doc("Always true, because devices report it.")] = True


@dataclass(frozen=True)
class SpeedFile:
    """speed.toml."""

    rule: tuple[Rule, ...]
    point: tuple[PublishedSpeed, ...]
