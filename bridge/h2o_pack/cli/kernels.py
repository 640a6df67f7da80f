"""The `kernels` commands."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import PATH
from h2o_pack.errors import ExitCode


@click.group(epilog="Example: h2o-pack kernels check --download")
def kernels() -> None:
    """Check the Metal kernels, and tell what they are."""


@command(example="h2o-pack kernels check --download")
@click.option("--wheels", type=PATH, help="Folder with the macOS wheels.")
@click.option("--download", is_flag=True, help="Get them from pypi.org; 170 MB, once.")
def check(*, wheels: Path | None, download: bool, out: Terminal) -> None:
    """Find what a Mac would refuse, with what this machine has."""
    from h2o_pack.kernels.checks import run_checks
    from h2o_pack.kernels.tables import print_checks

    with out.progress() as say:
        report = run_checks(given_wheels=wheels, may_download=download, say=say)
    out.show(report, lambda console: print_checks(report, console))
    if not report.passed:
        sys.exit(ExitCode.DIFFERENT)


@command(example="h2o-pack kernels report --json")
def report(*, out: Terminal) -> None:
    """List the kernels: buffers, function constants, memory, and what checks them."""
    from h2o_pack.kernels.report import make_report
    from h2o_pack.kernels.tables import print_kernels

    described = make_report()
    out.show(described, lambda console: print_kernels(described, console))


for each in (check, report):
    kernels.add_command(each)
