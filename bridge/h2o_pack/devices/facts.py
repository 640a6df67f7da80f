"""The tables of devices.toml and speed.toml; the dataclasses are their schema."""

from __future__ import annotations

from dataclasses import dataclass

UNITS = {
    "bytes": 1.0,
    "MB": 1e6,
    "MiB": 2.0**20,
    "GB": 1e9,
    "GiB": 2.0**30,
    "GB/s": 1e9,
}
KINDS = ("measured", "reported", "estimated")
RAM, DEFAULT, ENTITLED, BANDWIDTH = "ram", "default", "entitled", "bandwidth"
WHATS = (RAM, DEFAULT, ENTITLED, BANDWIDTH)


@dataclass(frozen=True)
class Chip:
    """A system on a chip; backend is a name in backends.toml."""

    name: str
    backend: str


@dataclass(frozen=True)
class Memory:
    """Devices with the same memory, and so the same limits."""

    name: str
    what: str


@dataclass(frozen=True)
class Device:
    """What has one name; storage where the RAM of its identifiers depends on it."""

    identifiers: tuple[str, ...]
    name: str
    chip: str
    memory: str
    storage: str = ""


@dataclass(frozen=True)
class Number:
    """A number of a chip, a memory class or an identifier, and who says so."""

    of: str
    what: str
    value: float
    unit: str
    kind: str
    source: str
    os_version: str = ""
    note: str = ""

    @property
    def amount(self) -> float:
        """In bytes, or bytes a second."""
        return self.value * UNITS[self.unit]


@dataclass(frozen=True)
class Rule:
    """A constant of the speed estimate."""

    name: str
    value: float
    what: str
    source: str
    kind: str


@dataclass(frozen=True)
class Point:
    """A published speed; bytes of all weights, which a step reads."""

    model: str
    identifier: str
    bytes: int
    tokens_per_second: float
    source: str
    kind: str
