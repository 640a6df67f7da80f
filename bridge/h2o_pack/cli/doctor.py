"""The `doctor` command."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import PATH
from h2o_pack.errors import ExitCode


@command(example="h2o-pack doctor")
@click.option(
    "--output",
    type=PATH,
    default=Path(),
    show_default=False,
    help="Folder that packages will be made in. [default: this one]",
)
def doctor(*, output: Path, out: Terminal) -> None:
    """Tell what this machine has of what h2o-pack needs, and what to do about the rest.

    Exits with 5 where `h2o-pack ios` cannot work: an old Python, another mlx or mlx-lm
    than the pinned one, no room where packages are made. Xcode is needed to build a
    package, not to make one.
    """
    from h2o_pack.doctor.checkup import check_up
    from h2o_pack.doctor.surroundings import Surroundings
    from h2o_pack.doctor.tables import print_checkup

    with out.progress() as say:
        say("looking at this machine")
        checkup = check_up(Surroundings(output=output.absolute()))
    out.show(checkup, lambda console: print_checkup(checkup, console))
    if checkup.blocked:
        sys.exit(ExitCode.TOOL)
