"""The `doctor` command."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import PATH
from h2o_pack.errors import ExitCode


@command(example="h2o-pack doctor ~/MyApp")
@click.argument("app", type=PATH, required=False)
@click.option(
    "--output",
    type=PATH,
    default=Path(),
    show_default=False,
    help="Folder that packages will be made in. [default: this one]",
)
def doctor(*, app: Path | None, output: Path, out: Terminal) -> None:
    """Tell what this machine has of what h2o-pack needs, and what to do about the rest.

    Exits with 5 where `h2o-pack ios` cannot work: an old Python, another mlx or mlx-lm
    than the pinned one, no room where packages are made. Xcode is needed to build a
    package, not to make one.

    With APP, the folder of an app's Package.swift or Xcode project, it tells instead what
    collides when a package is added to the app, and what to do. Then it exits with 1 if
    something does, and with 2 if APP is not an app's folder.
    """
    from h2o_pack.coexistence.report import check_app, print_app
    from h2o_pack.doctor.checkup import check_up
    from h2o_pack.doctor.surroundings import Surroundings
    from h2o_pack.doctor.tables import print_checkup

    machine = Surroundings(output=output.absolute())
    if app is not None:
        with out.progress() as say:
            say(f"reading {app}")
            found = check_app(app, machine)
        out.show(found, lambda console: print_app(found, console))
        if found.collides:
            sys.exit(ExitCode.DIFFERENT)
        return
    with out.progress() as say:
        say("looking at this machine")
        checkup = check_up(machine)
    out.show(checkup, lambda console: print_checkup(checkup, console))
    if checkup.blocked:
        sys.exit(ExitCode.TOOL)
