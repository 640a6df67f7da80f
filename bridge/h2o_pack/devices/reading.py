"""Reads a file of devices and refuses what cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from h2o_pack.devices.facts import (
    BANDWIDTH,
    KINDS,
    UNITS,
    WHATS,
    Chip,
    Device,
    Memory,
    Number,
)
from h2o_pack.errors import ExitCode, UserError, nearest
from h2o_pack.facts import tables, toml
from h2o_pack.memory.backends import backends

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from h2o_pack.devices.listed import Catalogue

KEYS: Mapping[str, type[Any]] = {
    "chip": Chip,
    "memory": Memory,
    "device": Device,
    "number": Number,
}


def read_file(file: Path) -> dict[str, tuple[Any, ...]]:
    """Read one file's tables, strictly."""
    try:
        document = toml.loads(file.read_text("utf-8"))
        read = {key: tables(document, key, kind, str(file)) for key, kind in KEYS.items()}
    except OSError as error:
        what = f"the file of devices cannot be read: {error.strerror}"
        raise refused(what, str(file)) from error
    except (ValueError, RecursionError, AttributeError, TypeError) as error:
        what = str(error).removeprefix(f"{file}: ")
        raise refused(what, str(file)) from error
    for key in document:
        if key not in KEYS:
            near = nearest(key, KEYS)
            raise refused(f"[[{key}]] is none of {', '.join(KEYS)}", str(file), near)
    return read


def check(found: Catalogue, read: Mapping[str, tuple[Any, ...]], file: str) -> None:
    """Refuse names that nothing has, units, and numbers that cannot be."""

    def known(value: str, names: Iterable[str], place: str, key: str) -> None:
        names = list(names)
        if value not in names:
            near = nearest(value, names)
            raise refused(
                f'{place}: {key} = "{value}" is none of {", ".join(names)}', file, near
            )

    for chip in read["chip"]:
        known(chip.backend, backends(), f"[[chip]] {chip.name}", "backend")
    for device in read["device"]:
        place = f"[[device]] {device.name}"
        known(device.chip, found.chips, place, "chip")
        known(device.memory, found.memories, place, "memory")
        if not device.identifiers:
            raise refused(f"{place} has no identifiers", file)
    identifiers = [identifier for identifier, _ in found.devices]
    for order, number in enumerate(read["number"], start=1):
        place = f"[[number]] number {order} ({number.what} of {number.of})"
        known(number.what, WHATS, place, "what")
        known(number.unit, UNITS, place, "unit")
        known(number.kind, KINDS, place, "kind")
        known(number.of, [*found.chips, *found.memories, *identifiers], place, "of")
        if (number.unit == "GB/s") != (number.what == BANDWIDTH):
            raise refused(f'{place}: "{number.unit}" is no unit of {number.what}', file)
        if not 0 < number.amount < float("inf"):
            raise refused(f"{place}: value = {number.value} must be above 0", file)


def refused(what: str, where: str, near: str = "") -> UserError:
    """Make the error for a wrong file."""
    return UserError(
        what,
        where=where,
        remedy=f"{near}The entries of h2o-pack's own devices.toml are the pattern: "
        "`h2o-pack devices --json` shows their numbers.",
        code=ExitCode.USAGE,
    )
