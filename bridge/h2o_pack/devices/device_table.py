"""Devices as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from h2o_pack.devices.device import Device
from h2o_pack.devices.facts import DEFAULT, ENTITLED, Number
from h2o_pack.sizes import gigabytes

if TYPE_CHECKING:
    from rich.console import Console

PLAIN: dict[str, Any] = {"show_edge": False, "collapse_padding": True, "pad_edge": False}
KNOWN = {"measured": "", "reported": "", "estimated": "~"}


def print_devices(devices: tuple[Device, ...], console: Console, *, sources: bool) -> None:
    """Show devices and, for few of them, who says so."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title="devices", title_justify="left", box=SIMPLE_HEAD, **PLAIN)
    for name in ("identifier", "device", "chip"):
        table.add_column(name, no_wrap=name != "device")
    for name in ("GiB", "limit", "entitled", "GB/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for device in devices:
        memory, bandwidth = device.ram, device.bandwidth
        table.add_row(
            device.identifier,
            device.title,
            device.chip,
            "-" if memory is None else f"{memory / 2**30:g}",
            limit(device.number(DEFAULT)),
            limit(device.number(ENTITLED)),
            "-" if bandwidth is None else f"{bandwidth / 1e9:g}",
        )
    console.print(table)
    caption(
        "GiB of RAM; limit: what an app may use, in GB; entitled: with increased-memory-limit "
        "and extended-virtual-addressing. ~ estimated; `h2o-pack devices NAME` shows sources.",
        console,
    )
    if sources:
        print_sources(devices, console)


def print_sources(devices: tuple[Device, ...], console: Console) -> None:
    """Show every number of some devices, those that plans do not use too."""
    from rich.table import Table

    for device in devices:
        table = Table(title=f"{device.identifier} {device.title}", title_justify="left")
        for name in ("what", "value", "kind", "system", "source", "note"):
            table.add_column(name)
        for number in device.numbers:
            table.add_row(
                number.what,
                f"{number.value:,.10g} {number.unit}",
                number.kind,
                number.os_version,
                number.source,
                number.note,
            )
        console.print(table)


def limit(number: Number | None) -> str:
    """A limit in GB, with a sign before estimates."""
    return "-" if number is None else KNOWN[number.kind] + gigabytes(number.amount)


def caption(text: str, console: Console) -> None:
    """Show what stands below a table, on lines no longer than the screen."""
    console.print(text, style="dim", markup=False, soft_wrap=False)
