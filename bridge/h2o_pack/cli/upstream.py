"""The `upstream` commands."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import PATH
from h2o_pack.errors import ExitCode


@click.group(epilog="Example: h2o-pack upstream check")
def upstream() -> None:
    """Tell whether upstream is still what h2o-pack relies on."""


@command(example="h2o-pack upstream check --upstream checkouts")
@click.option(
    "--upstream",
    "folder",
    type=PATH,
    help="Folder with clones, instead of the installed mlx and mlx-lm.",
)
@click.option(
    "--upstream-version",
    metavar="NAME",
    default="",
    show_default="the newest release",
    help="Version of mlx-swift-lm whose edits the clones should take.",
)
def check(*, folder: Path | None, upstream_version: str, out: Terminal) -> None:
    """Find everything that drifted: C++, caches of mlx-lm, edits of Swift."""
    from h2o_pack.upstream.check import check as look
    from h2o_pack.upstream.report import print_upstream

    found = look(folder, upstream_version)
    out.show(found, lambda console: print_upstream(found, console))
    if found.drifted:
        sys.exit(ExitCode.DIFFERENT)


upstream.add_command(check)
