"""The `plan` command."""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from h2o_pack.cache_options import PREFILL_STEP
from h2o_pack.cli.frame import command
from h2o_pack.cli.types import KV
from h2o_pack.errors import Problems

if TYPE_CHECKING:
    from h2o_pack.cli.terminal import Terminal


@command(example="h2o-pack plan --model Qwen3-4B-4bit --max-kv 512 --device 'iPhone 16 Pro'")
@click.option("--model", required=True, help="Alias, folder, or id on huggingface.co.")
@click.option("--revision", default="", help="Branch, tag or commit on the hub.")
@click.option(
    "--assume-full-attention",
    is_flag=True,
    help="Take an unknown architecture for an ordinary one.",
)
@click.option(
    "--max-kv",
    type=int,
    help="Tokens each layer's cache keeps. [default: the model's own cache, which grows]",
)
@click.option(
    "--kv", type=click.Choice(KV), default="dense", show_default=True, help="Precision of rows."
)
@click.option("--recent-budget", type=int, help="Newest tokens that stay. [default: 1/4]")
@click.option(
    "--budgets", type=click.Path(path_type=Path), help="JSON file of budgets a layer."
)
@click.option("--context", type=int, help="Longest conversation. [default: the model's]")
@click.option(
    "--prefill-step",
    type=int,
    default=PREFILL_STEP,
    show_default=True,
    help="Tokens of a prompt that the model is given at once.",
)
@click.option(
    "--device", "names", multiple=True, help="Identifier or name; several may be given."
)
@click.option("--all", "every", is_flag=True, help="All devices, not one of each kind.")
@click.option(
    "--devices",
    "own",
    type=click.Path(path_type=Path),
    help="TOML file with devices of your own.",
)
@click.option("--html", type=click.Path(path_type=Path), help="File to write a page to.")
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

    Reads the model's configuration and headers only, never its weights.
    """
    from h2o_pack import plan_tables, planned
    from h2o_pack.models.resolve import resolve

    problems = Problems()
    with problems.caught():
        known, chosen = planned.choose(names, own, every=every)
    with problems.caught(), out.progress() as say:
        say(f"reading the headers of {model}")
        found = resolve(model, revision=revision, assume_full_attention=assume_full_attention)
    problems.refuse()
    report = planned.report(found, max_kv, options, known, chosen)
    if html is not None:
        planned.write_page(report, html)
    out.show(report.document(), lambda console: plan_tables.print_report(report, console))
