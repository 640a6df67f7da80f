"""Commands that list what h2o-pack knows: devices, models, policies, schemas, completion."""

from __future__ import annotations

from pathlib import Path

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.options import revision_options
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import PATH, POLICIES


@command(example='h2o-pack devices "iPhone 17 Pro"')
@click.argument("name", required=False)
@click.option(
    "--devices",
    "own",
    type=PATH,
    help="TOML file of your own, read over h2o-pack's. [default: $H2O_PACK_DEVICES, or "
    "devices.toml in the user's configuration folder]",
)
def devices(*, name: str | None, own: Path | None, out: Terminal) -> None:
    """List iPhones and iPads: memory, what an app may use of it, bandwidth.

    NAME is an identifier, a name or a part of one; then every number is shown with its
    source.
    """
    from h2o_pack.devices.catalogue import catalogue
    from h2o_pack.devices.device import DevicesResult
    from h2o_pack.devices.device_table import print_devices

    known = catalogue(own)
    found = known.find(name) if name else known.all_devices()
    out.show(
        DevicesResult(files=known.files, devices=found),
        lambda console: print_devices(found, console, sources=bool(name)),
    )


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
    from h2o_pack.models import model_tables as report

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


@click.group(epilog="Example: h2o-pack policy show standard > policy.toml")
def policy() -> None:
    """Write the settings of a cache to a file, which --policy takes."""


@command(example="h2o-pack policy show tuned > policy.toml")
@click.argument("name", metavar=f"[{'|'.join(POLICIES)}]")
def show(*, name: str, out: Terminal) -> None:
    """Print a policy as a file with every key, to be changed and given as --policy FILE."""
    from h2o_pack.plan.policy import show as shown_policy

    found = shown_policy(name)
    out.show(found, lambda console: console.print(found.text, end="", markup=False))


policy.add_command(show)


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


SHELLS = ("bash", "zsh", "fish")


@command(example='eval "$(h2o-pack completion zsh)"')
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, *, shell: str, out: Terminal) -> None:
    """Print what makes SHELL complete commands and options."""
    from click.shell_completion import get_completion_class

    from h2o_pack.results import CompletionResult

    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"click cannot complete for {shell}", ctx)
    root = ctx.find_root()
    script = made(root.command, {}, "h2o-pack", "_H2O_PACK_COMPLETE").source()
    result = CompletionResult(shell=shell, script=script)
    out.show(result, lambda _console: click.echo(script))
