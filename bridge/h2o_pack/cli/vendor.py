"""The `vendor` command."""

from __future__ import annotations

from pathlib import Path

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.options import origin_options
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import PATH


@command(example="h2o-pack vendor build/Demo --host linux")
@click.argument("package", type=PATH)
@origin_options
@click.option(
    "--host",
    type=click.Choice(["apple", "linux"]),
    default="apple",
    help="Where the package will be built.",
)
@click.option(
    "--upstream-version",
    metavar="NAME",
    default="",
    show_default="the package's",
    help="Version of mlx-swift-lm to stand on.",
)
@click.option(
    "--offline",
    is_flag=True,
    help="Copy the small libraries too, so that a build fetches nothing. An app that needs "
    "another version of them then cannot have the package.",
)
def vendor(
    *,
    package: Path,
    upstream: Path | None,
    mirror: str,
    cache: Path,
    host: str,
    upstream_version: str,
    offline: bool,
    out: Terminal,
) -> None:
    """Put upstream's sources, edited, into PACKAGE's Vendor folder.

    They are fetched with git at the commits that h2o-pack is made for, once.
    """
    from h2o_pack.package import summary, tables
    from h2o_pack.vendoring.fetch import Origin
    from h2o_pack.vendoring.vendor import vendor as fill

    with out.progress(log=not out.json) as say:
        origin = upstream or Origin(cache, mirror)
        vendored = fill(package, origin, host, say, version=upstream_version, offline=offline)
    out.show(
        summary.vendor_result(package, vendored),
        lambda console: tables.print_vendored(package, vendored, console),
    )
