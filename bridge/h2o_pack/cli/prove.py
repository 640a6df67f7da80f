"""The `prove` command."""

from __future__ import annotations

from pathlib import Path

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import PATH


@command(example="h2o-pack prove --check proof.json")
@click.argument("file", type=PATH)
@click.option("--check", is_flag=True, required=True, help="Check the report in FILE.")
def prove(*, file: Path, check: bool, out: Terminal) -> None:
    """Prove what this machine does, or check what another one's report says."""
    del check
    from h2o_pack.prove.read import check_report
    from h2o_pack.prove.tables import print_checked

    checked = check_report(file)
    out.show(checked, lambda console: print_checked(checked, console))
