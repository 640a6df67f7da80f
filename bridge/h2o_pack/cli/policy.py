"""The `policy` commands."""

from __future__ import annotations

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import POLICIES


@click.group(epilog="Example: h2o-pack policy show standard > policy.toml")
def policy() -> None:
    """Write the settings of a cache to a file, which --policy takes."""


@command(example="h2o-pack policy show tuned > policy.toml")
@click.argument("name", metavar=f"[{'|'.join(POLICIES)}]")
def show(*, name: str, out: Terminal) -> None:
    """Print a policy as a file with every key, to be changed and given as --policy FILE."""
    from h2o_pack.plan.policy_text import show as shown_policy

    found = shown_policy(name)
    out.show(found, lambda console: console.print(found.text, end="", markup=False))


policy.add_command(show)
