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
@click.option(
    "--run-manifest",
    is_flag=True,
    help="Run APP's Package.swift without a question: it is a program, and Swift reads it so.",
)
def doctor(*, app: Path | None, output: Path, run_manifest: bool, out: Terminal) -> None:
    """Tell what this machine has of what h2o-pack needs, and what to do about the rest.

    Exits with 5 where `h2o-pack ios` cannot work: an old Python, another mlx or mlx-lm
    than the pinned one, no room where packages are made. Xcode is needed to build a
    package, not to make one.

    With APP, the folder of an app's Package.swift or Xcode project, it tells instead what
    collides when a package is added to the app, and what to do. Then it exits with 1 if
    something does, and with 2 if APP is not an app's folder. A Package.swift is a program:
    it runs only with --run-manifest, or after a question at a terminal.
    """
    from h2o_pack.coexistence.collisions import check_app, print_app
    from h2o_pack.doctor.checks import check_up
    from h2o_pack.doctor.finding import print_checkup
    from h2o_pack.doctor.machine import Surroundings

    machine = Surroundings(output=output.absolute())
    if app is not None:
        may_run = run_manifest or may_run_manifest(app, out)
        with out.progress() as say:
            say(f"reading {app}")
            found = check_app(app, machine, may_run=may_run)
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


def may_run_manifest(app: Path, out: Terminal) -> bool:
    """Ask whether Swift may run the manifest of an app; no where nobody can answer."""
    folder = app.parent if app.suffix in (".xcodeproj", ".xcworkspace") else app
    manifest = folder / "Package.swift"
    if out.json or out.quiet or not sys.stdin.isatty() or not manifest.is_file():
        return False
    return click.confirm(f"{manifest} is a program. Run it, to read it?", err=True)
