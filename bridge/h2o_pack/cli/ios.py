"""The `ios` command."""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.options import cache_options, model_options
from h2o_pack.cli.types import PinnedRange
from h2o_pack.errors import ExitCode

if TYPE_CHECKING:
    from h2o_pack.cli.terminal import Terminal


@command(example="h2o-pack ios --model Qwen3-4B-4bit --max-kv 512 --device iPhone16,1")
@model_options
@click.option("--max-kv", required=True, type=int, help="Tokens each layer's cache keeps.")
@cache_options
@click.option(
    "--device",
    "devices",
    multiple=True,
    help="Refuse what does not fit this one; several may be given.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Folder. [default: NAME]")
@click.option("--name", help="Name of the package. [default: from the model]")
@click.option(
    "--sink-size", type=int, help="First tokens that always stay. [default: the policy's]"
)
@click.option(
    "--heavy-budget", type=int, help="Tokens for heavy hitters. [default: the policy's]"
)
@click.option(
    "--score",
    type=click.Choice(["peak", "softmax", "abs_logit"]),
    help="What of the attention is scored. [default: the policy's]",
)
@click.option(
    "--decay", type=float, help="Factor of a score per query. [default: the policy's]"
)
@click.option(
    "--novelty", type=float, help="Weight of a key's novelty. [default: the policy's]"
)
@click.option(
    "--novelty-margin", type=float, help="What is not yet novel. [default: the policy's]"
)
@click.option("--pin", type=PinnedRange(), multiple=True, help="Positions that always stay.")
@click.option("--observation-window", type=int, help="Queries of a chunk that score.")
@click.option(
    "--asset-pack",
    is_flag=True,
    help="Keep the model out of the app: Apple hosts it and devices fetch it (iOS 26).",
)
@click.option(
    "--vendor/--no-vendor",
    default=True,
    envvar="H2O_PACK_VENDOR",
    show_envvar=True,
    show_default=True,
    help="Fetch upstream's sources into Vendor.",
)
@click.option("--dry-run", is_flag=True, help="Plan and show; write nothing.")
def ios(
    *,
    model: str,
    revision: str,
    assume_full_attention: bool,
    output: Path | None,
    name: str | None,
    pin: tuple[tuple[int, int], ...],
    asset_pack: bool,
    vendor: bool,
    dry_run: bool,
    out: Terminal,
    **options: Any,
) -> None:
    """Make a Swift package with a model and its H2O cache.

    Only the model's files and upstream's sources are fetched, once. A run that was stopped
    is finished by running the command again.
    """
    from h2o_pack.package import build as pipeline
    from h2o_pack.package import summary
    from h2o_pack.plan.options import CacheOptions
    from h2o_pack.vendoring.fetch import usual_origin

    order = pipeline.Order(
        model=model,
        cache=CacheOptions(pinned=pin, **options),
        revision=revision,
        assume_full_attention=assume_full_attention,
        name=name,
        output=output,
        asset_pack=asset_pack,
        upstream=usual_origin() if vendor else None,
    )
    with out.progress() as say:
        plan = pipeline.prepare(order, say)
        made = (
            pipeline.rehearse(plan, order) if dry_run else pipeline.carry_out(plan, order, say)
        )
    out.show(summary.made_document(made), lambda console: summary.print_made(made, console))
    if made.not_vendored is not None:
        click.echo(f"error: {made.not_vendored}", err=True)
        sys.exit(made.not_vendored.code)
    if made.verification is not None and made.verification.differences:
        sys.exit(ExitCode.DIFFERENT)
