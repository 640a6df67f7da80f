"""The `plan` command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.options import (
    MAX_KV,
    cache_options,
    given_settings,
    model_options,
    recall_options,
    settings,
)
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import PATH
from h2o_pack.errors import Problems


@command(example="h2o-pack plan --model Qwen3-4B-4bit --max-kv 512 --device 'iPhone 16 Pro'")
@model_options
@click.option(
    MAX_KV.flag, type=int, help=f"{MAX_KV.help} [default: the model's own cache, which grows]"
)
@cache_options
@recall_options
@settings("recent_budget")
@click.option(
    "--device", "names", multiple=True, help="Identifier or name; several may be given."
)
@click.option("--all", "every", is_flag=True, help="All devices, not one of each kind.")
@click.option("--devices", "own", type=PATH, help="TOML file with devices of your own.")
@click.option("--html", type=PATH, help="File to write a page to.")
def plan(
    *,
    model: str,
    revision: str,
    assume_full_attention: bool,
    max_kv: int | None,
    names: tuple[str, ...],
    every: bool,
    own: Path | None,
    html: Path | None,
    out: Terminal,
    **options: Any,
) -> None:
    """Plan the memory of a model on devices, and estimate its speed.

    Reads the model's configuration and headers only, never its weights. Needs no network for
    a model of the catalogue (`h2o-pack models` lists them).
    """
    from h2o_pack.hub.resolve import resolve
    from h2o_pack.plan import command as planned
    from h2o_pack.plan import tables as plan_tables

    options["settings"] = given_settings(options)
    problems = Problems()
    with problems.caught():
        known, chosen = planned.find_devices(names, own, every=every)
    with problems.caught(), out.progress() as say:
        say(f"reading the headers of {model}")
        found = resolve(
            model,
            revision=revision,
            assume_full_attention=assume_full_attention,
            stated=True,
        )
    problems.refuse()
    report = planned.report(found, max_kv, options, known, chosen)
    if html is not None:
        planned.write_page(report, html)
    out.show(report, lambda console: plan_tables.print_report(report, console))
