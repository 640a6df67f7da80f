"""The commands that check this machine, an app, a package, and Swift against Python."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from h2o_pack.cli import options as common
from h2o_pack.cli.frame import command
from h2o_pack.cli.terminal import Terminal
from h2o_pack.errors import ExitCode


@command(example="h2o-pack doctor ~/MyApp")
@click.argument("app", type=common.PATH, required=False)
@click.option(
    "--output",
    type=common.PATH,
    default=Path(),
    show_default=False,
    help="Folder for packages; doctor checks its disk. [default: the current folder]",
)
def doctor(*, app: Path | None, output: Path, out: Terminal) -> None:
    """Check this machine for what h2o-pack needs.

    Exits with 5 if `h2o-pack ios` cannot work on this machine: Python is too old, mlx or
    mlx-lm is not the pinned version, or the output folder's disk is full. Making a package
    needs no Xcode; building an app with it does.

    With APP, the folder of an app's Package.swift or Xcode project, doctor instead lists what
    stops a package in that app, and how to solve it. It then exits with 1 if there is a
    problem, and with 2 if APP is not an app's folder. It runs nothing of the app.
    """
    from h2o_pack.doctor.app import check_app
    from h2o_pack.doctor.checks import check_up
    from h2o_pack.doctor.finding import print_checkup
    from h2o_pack.doctor.machine import Surroundings

    if app is not None:
        checkup = check_app(app)
    else:
        with out.progress() as say:
            say("looking at this machine")
            checkup = check_up(Surroundings(output=output.absolute()))
    out.show(checkup, lambda console: print_checkup(checkup, console, app))
    if checkup.blocked:
        sys.exit(ExitCode.TOOL if app is None else ExitCode.DIFFERENT)


@command(example="h2o-pack verify build/Demo")
@click.argument("package", type=common.PATH)
@click.option("--quick", is_flag=True, help="Compare only the sizes of the model's files.")
@click.option("--strict", is_flag=True, help="Exit with 1 also if you added files.")
def verify(*, package: Path, quick: bool, strict: bool, out: Terminal) -> None:
    """Check that every file of PACKAGE is as h2o-pack wrote it.

    Also lists files that you added and files of the app that you changed. These are not
    errors.
    """
    from h2o_pack.verify.check import print_verification
    from h2o_pack.verify.check import verify as check

    with out.progress() as say:
        verification = check(package, quick=quick, say=say)
    out.show(verification, lambda console: print_verification(verification, console))
    if verification.differences or (strict and verification.users):
        sys.exit(ExitCode.DIFFERENT)


@command(example="h2o-pack parity build/Demo")
@click.argument("package", type=common.PATH)
@click.option(
    "--level",
    "levels",
    type=click.Choice(["text", "op", "trace", "tokens", "all"]),
    multiple=True,
    help='Check only this level. Repeat it for several levels. The level "tokens" needs '
    'PACKAGE/Vendor; "text" needs Vendor or downloads sources. [default: op and trace]',
)
@click.option("--require-swift", is_flag=True, help="Exit with 5 if Swift is missing.")
@common.origin_options
def parity(
    *,
    package: Path,
    levels: tuple[str, ...],
    require_swift: bool,
    out: Terminal,
    **options: Any,
) -> None:
    """Check that PACKAGE does in Swift what Python does.

    The level "text" asks the app's tokenizer, chat template and decoders of configurations, the
    other levels compare caches and models with those of mlx-lm.
    """
    from h2o_pack.parity.openblas import use_openblas

    use_openblas()
    from h2o_pack.parity.parity import DEFAULT, LEVELS, run_parity
    from h2o_pack.parity.parity_report import print_report

    with out.progress() as say:
        report = run_parity(
            package,
            levels=tuple(LEVELS) if "all" in levels else levels or DEFAULT,
            require_swift=require_swift,
            upstream=common.origin(options),
            progress=say,
        )
    out.show(report, lambda console: print_report(report, console))
    if report.differs:
        sys.exit(ExitCode.DIFFERENT)
