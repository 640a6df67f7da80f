"""The `models` command."""

from __future__ import annotations

from pathlib import Path

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.options import revision_options
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import PATH


@command(example="h2o-pack models Qwen3-4B-4bit")
@click.argument("name", required=False)
@revision_options
@click.option(
    "--catalogue",
    "own",
    metavar="FILE",
    type=PATH,
    envvar="H2O_PACK_MODELS",
    show_envvar=True,
    help="TOML with models of your own; its keys are those of h2o_pack/facts/models.toml.",
)
def models(
    *,
    name: str | None,
    revision: str,
    assume_full_attention: bool,
    own: Path | None,
    out: Terminal,
) -> None:
    """List the known models, or describe the model NAME.

    NAME is one of the list, a folder, or an id on the hub, of which only the metadata is
    read.
    """
    from h2o_pack.hub.resolve import listed, resolve
    from h2o_pack.plan import model_tables as report

    if name is None:
        known = report.catalogue_result(listed(own))
        out.show(known, lambda console: report.print_catalogue(known.models, console))
        return
    with out.progress() as say:
        say(f"reading what describes {name}")
        model = resolve(
            name,
            revision=revision,
            assume_full_attention=assume_full_attention,
            own=own,
        )
    out.show(report.model_result(model), lambda console: report.print_model(model, console))
