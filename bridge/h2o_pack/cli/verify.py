"""The `verify` command."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import PATH
from h2o_pack.errors import ExitCode


@command(example="h2o-pack verify build/Demo")
@click.argument("package", type=PATH)
@click.option("--quick", is_flag=True, help="Compare sizes of the model's files only.")
@click.option("--strict", is_flag=True, help="End with 1 for files of your own too.")
def verify(*, package: Path, quick: bool, strict: bool, out: Terminal) -> None:
    """Check that every file of PACKAGE is as h2o-pack wrote it.

    Files of your own, and those of the app that you changed, are named and no error.
    """
    from h2o_pack.verify.check import print_verification
    from h2o_pack.verify.check import verify as check

    with out.progress() as say:
        found = check(package, quick=quick, say=say)
    out.show(found, lambda console: print_verification(found, console))
    if found.differences or (strict and found.users):
        sys.exit(ExitCode.DIFFERENT)
