"""The `schema` command."""

from __future__ import annotations

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.terminal import Terminal


@command(example="h2o-pack schema plan")
@click.argument("name", metavar="COMMAND")
def schema(*, name: str, out: Terminal) -> None:
    """Print the JSON Schema of what COMMAND prints with --json.

    The parts of a command's name are joined by "-", as in kernels-check. "error" is what any
    command prints when it fails.
    """
    from h2o_pack import results

    document = results.schema(name)
    out.show(document, lambda console: console.print_json(data=document))
