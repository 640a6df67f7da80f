"""The `devices` command."""

from __future__ import annotations

from pathlib import Path

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import PATH


@command(example='h2o-pack devices "iPhone 17 Pro"')
@click.argument("name", required=False)
@click.option(
    "--devices",
    "own",
    type=PATH,
    help="TOML file of your own, read over h2o-pack's. [default: $H2O_PACK_DEVICES, or "
    "devices.toml in the user's configuration folder]",
)
def devices(*, name: str | None, own: Path | None, out: Terminal) -> None:
    """List iPhones and iPads: memory, what an app may use of it, bandwidth.

    NAME is an identifier, a name or a part of one; then every number is shown with its
    source.
    """
    from h2o_pack.devices.catalogue import catalogue
    from h2o_pack.devices.device import DevicesResult
    from h2o_pack.plan.tables import print_devices

    known = catalogue(own)
    found = known.find(name) if name else known.all_devices()
    out.show(
        DevicesResult(files=known.files, devices=found),
        lambda console: print_devices(found, console, sources=bool(name)),
    )
