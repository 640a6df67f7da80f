"""The `ios` command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from h2o_pack.cli import project
from h2o_pack.cli.frame import command
from h2o_pack.cli.options import (
    cache_options,
    choice_options,
    device_options,
    given_of,
    max_kv_option,
    models_options,
    origin_options,
    recall_options,
    settings,
)
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import FILE, PATH
from h2o_pack.errors import ExitCode

if TYPE_CHECKING:
    from h2o_pack.package.build import PackageResult


@command(example="h2o-pack ios --model Qwen3-4B-4bit --max-kv 512 --device iPhone16,1")
@models_options
@max_kv_option("chosen for --device")
@cache_options
@recall_options
@device_options("Refuse what does not fit, and choose what is not given.")
@choice_options
@click.option("--output", type=PATH, help="Folder. [default: NAME]")
@click.option("--name", help="Name of the package. [default: from the model]")
@click.option(
    "--bundle-id",
    metavar="ID",
    default="",
    show_default="one of your own",
    help="Identifier of the app, such as com.example.Chat.",
)
@settings()
@click.option(
    "--asset-pack",
    is_flag=True,
    help="Keep the model out of the app: Apple hosts it and devices fetch it (iOS 26).",
)
@click.option(
    "--download",
    metavar="URL",
    default="",
    show_default=False,
    help="Keep the model out of the app: it is fetched at the first launch from this folder "
    "of a server of yours (iOS 17).",
)
@click.option(
    "--system",
    type=FILE,
    help="UTF-8 file with the system prompt: its caches are computed now, so that the first "
    "turn need not read it.",
)
@click.option(
    "--adapter",
    type=PATH,
    help="Folder of a LoRA adapter that mlx_lm.lora made; the app's model is adapted by it.",
)
@click.option(
    "--vendor/--no-vendor",
    default=True,
    envvar="H2O_PACK_VENDOR",
    show_envvar=True,
    help="Fetch upstream's sources into Vendor.",
)
@origin_options
@click.option(
    "--upstream-version",
    metavar="NAME",
    default="",
    show_default="the newest release",
    help="Version of mlx-swift-lm to stand on; `h2o-pack --version` lists them.",
)
@click.option(
    "--app",
    is_flag=True,
    help="Write the app's newest scaffold to App.new; your App is never changed.",
)
@click.option("--dry-run", is_flag=True, help="Plan and show; write nothing.")
def ios(
    *,
    models: tuple[str, ...],
    output: Path | None,
    name: str | None,
    bundle_id: str,
    system: Path | None,
    adapter: Path | None,
    vendor: bool,
    upstream: Path | None,
    mirror: str,
    cache: Path,
    app: bool,
    dry_run: bool,
    out: Terminal,
    **options: Any,
) -> None:
    """Make a Swift package with a model and its H2O cache.

    Only the model's files and upstream's sources are fetched, once. A run that was stopped
    is finished by running the command again. Of several models the app takes the largest that
    fits its device. Without options the packages of h2o-pack.toml in this folder are made, if
    there is one.
    """
    from h2o_pack.choice.several import settle_each
    from h2o_pack.package import build as pipeline
    from h2o_pack.package import summary, tables
    from h2o_pack.package.prepare import prepare
    from h2o_pack.package.request import ModelRequest, PackageRequest
    from h2o_pack.vendoring.fetch import Origin

    if project.make_packages(click.get_current_context()):
        return
    given = given_of({**options, "model": None})
    with out.progress() as say:
        first, *others = settle_each(given, models, say)
        request = PackageRequest(
            model=first.model,
            cache=first.cache,
            others=tuple(ModelRequest(each.model, each.cache) for each in others),
            revision=given.revision,
            assume_full_attention=given.assume_full_attention,
            name=name,
            output=output,
            asset_pack=given.asset_pack,
            download=given.download,
            system=system,
            adapter=adapter,
            upstream=(upstream or Origin(cache, mirror)) if vendor else None,
            upstream_version=given.upstream_version,
            new_app=app,
            bundle_id=bundle_id,
        )
        plan = prepare(request, say)
        made = (
            pipeline.dry_run(plan, request) if dry_run else pipeline.build(plan, request, say)
        )
    chosen = {each.model: each.choice for each in (first, *others) if each.choice}
    result = summary.ios_result(made, chosen)
    if not project.collected(result):
        out.show(result, lambda console: tables.print_made(made, chosen, console))
    end(made)


def end(made: PackageResult) -> None:
    """End with the exit code of what could not be had, or of what differs."""
    if made.not_vendored is not None:
        click.echo(f"error: {made.not_vendored}", err=True)
        sys.exit(made.not_vendored.code)
    if made.verification is not None and made.verification.differences:
        sys.exit(ExitCode.DIFFERENT)
