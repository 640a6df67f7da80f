"""The `parity` command."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import PATH
from h2o_pack.errors import ExitCode


@command(example="h2o-pack parity build/Demo")
@click.argument("package", type=PATH)
@click.option(
    "--level",
    "levels",
    type=click.Choice(["op", "trace", "tokens", "all"]),
    multiple=True,
    help="Check this level only; may be given again. tokens needs PACKAGE/Vendor. "
    "[default: op and trace]",
)
@click.option("--require-swift", is_flag=True, help="Exit with 5 where there is no Swift.")
def parity(
    *, package: Path, levels: tuple[str, ...], require_swift: bool, out: Terminal
) -> None:
    """Check that PACKAGE does in Swift what mlx-lm does in Python."""
    from h2o_pack.parity.parity import DEFAULT, LEVELS, run_parity
    from h2o_pack.parity.report import print_report

    with out.progress() as say:
        report = run_parity(
            package,
            levels=tuple(LEVELS) if "all" in levels else levels or DEFAULT,
            require_swift=require_swift,
            progress=say,
        )
    out.show(report, lambda console: print_report(report, console))
    if report.differs:
        sys.exit(ExitCode.DIFFERENT)
