"""The `choose` command."""

from __future__ import annotations

import sys
from typing import Any

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.options import (
    cache_options,
    choice_options,
    device_options,
    given_of,
    max_kv_option,
    model_options,
    recall_options,
    settings,
)
from h2o_pack.cli.terminal import Terminal
from h2o_pack.errors import ExitCode


@command(example='h2o-pack choose --device "iPhone 15" --context 16384')
@device_options("All of them must hold it; several may be given.")
@model_options
@max_kv_option("chosen")
@cache_options
@recall_options
@settings()
@choice_options
@click.option("--asset-pack", is_flag=True, help="The model comes apart from the app.")
def choose(*, out: Terminal, **options: Any) -> None:
    """Show which model and which cache suit some devices, and why not the others.

    What is given is kept and the rest is chosen: the largest model of the catalogue that
    leaves a tenth of the memory free, and the cache that loses least by a table of measured
    losses. `ios` and `plan` choose in the same way what they are not given.
    """
    from h2o_pack.choice import command as choosing
    from h2o_pack.choice.tables import print_choice

    given = given_of(options)
    with out.progress() as say:
        request = choosing.choice_request(given, say)
        choice = choosing.make_choice(given, request, say)
    out.show(choice, lambda console: print_choice(choice, console))
    if choice.chosen is None:
        sys.exit(ExitCode.MEMORY)
