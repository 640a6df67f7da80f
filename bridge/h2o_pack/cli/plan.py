"""Commands that plan, and that list devices, models and schemas."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from h2o_pack.cli import options as common
from h2o_pack.cli.frame import command
from h2o_pack.cli.terminal import Terminal
from h2o_pack.errors import ExitCode, Problems
from h2o_pack.spec import CacheSpec, ModelSpec


@command(example="h2o-pack plan --model Qwen3-4B-4bit --max-kv 512 --device 'iPhone 16 Pro'")
@common.model_options(several=True)
@common.cache_options(max_kv="a cache that keeps every token")
@common.settings
@common.device_options("Repeat it for several devices.")
@common.choice_options
@click.option(
    "--all", "every", is_flag=True, help="Show all devices instead of one of each kind."
)
@click.option(
    "--measured",
    type=common.FILE,
    help="JSON file with the measured memory of a device, to compare with the plan.",
)
@click.option(
    "--html", type=common.PATH, help="Also write a page with all details to this file."
)
def plan(
    *,
    every: bool,
    measured: Path | None,
    html: Path | None,
    out: Terminal,
    **options: Any,
) -> None:
    """Plan the memory of a model on devices, and estimate its speed.

    Reads only the model's configuration and headers, never its weights. Needs no network for
    a model of the catalogue (`h2o-pack models` lists them). With several models, shows which
    one the app loads on each device. Without --model, chooses a model and its cache as
    `h2o-pack choose` does, and plans them.
    """
    from rich.console import Console

    from h2o_pack.choice.choice import ChosenPlan, print_chosen
    from h2o_pack.choice.choose import Criteria, chosen_plan
    from h2o_pack.plan.device_fit import PlanResult, plan_on_devices
    from h2o_pack.plan.plan_tables import print_plan, write_page

    problems = Problems()
    spec = common.spec_of(options, problems)
    problems.refuse()
    result: PlanResult
    with out.progress() as say:
        if spec.models[0].model is None:
            result = chosen_plan(spec, common.part(Criteria, options), say)
        else:
            result = plan_on_devices(spec, say, every=every, measured=measured)
    if html is not None:
        write_page(result, html)

    def people(console: Console) -> None:
        print_plan(result, console, verbose=out.verbose)
        if isinstance(result, ChosenPlan):
            print_chosen(result.choice, console, verbose=out.verbose)

    out.show(result, people)


@command(example='h2o-pack choose --device "iPhone 15" --context 16384')
@common.device_options("Repeat it for several devices; the choice must fit on all of them.")
@common.model_options()
@common.cache_options(max_kv="chosen")
@common.settings
@common.choice_options
@click.option("--asset-pack", is_flag=True, help="Keep the model out of the app.")
def choose(*, out: Terminal, **options: Any) -> None:
    """Choose a model and a cache for some devices, and show why.

    Keeps the options that you give, and chooses the others: the largest model of the
    catalogue that leaves a tenth of the memory free, and the cache that loses least in a
    table of measured losses. `ios` and `plan` choose in the same way.
    """
    from h2o_pack.choice.choice import print_choice
    from h2o_pack.choice.choose import Criteria, show_candidates

    problems = Problems()
    spec = common.spec_of(options, problems)
    problems.refuse()
    with out.progress() as say:
        choice = show_candidates(spec, common.part(Criteria, options), say)
    out.show(choice, lambda console: print_choice(choice, console, verbose=out.verbose))
    if choice.chosen is None:
        sys.exit(ExitCode.MEMORY)


@command(example='h2o-pack devices "iPhone 17 Pro"')
@click.argument("name", required=False)
@click.option(
    "--devices",
    "own",
    type=common.PATH,
    help="TOML file with your own devices. [default: $H2O_PACK_DEVICES, or "
    "devices.toml in the user's configuration folder]",
)
def devices(*, name: str | None, own: Path | None, out: Terminal) -> None:
    """List iPhones and iPads: memory, limit of an app, bandwidth.

    With NAME (an identifier, a name, or part of a name), shows the source of each number.
    """
    from h2o_pack.devices.catalogue import DevicesResult, catalogue, print_devices

    entries = catalogue(own)
    devices = entries.find(name) if name else entries.all_devices()
    out.show(
        DevicesResult(files=entries.files, devices=devices),
        lambda console: print_devices(devices, console, sources=bool(name)),
    )


@command(example="h2o-pack models Qwen3-4B-4bit")
@click.argument("name", required=False)
@common.revision_options
@click.option(
    "--catalogue",
    "own",
    metavar="FILE",
    type=common.PATH,
    envvar="H2O_PACK_MODELS",
    show_envvar=True,
    help="TOML file with your own models, in the format of h2o_pack/facts/models.toml.",
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

    NAME is a name in the list, a folder, or an id on the hub. Reads only metadata.
    """
    from h2o_pack.hub.resolve import find_model, listed
    from h2o_pack.models import model_tables as report

    if name is None:
        result = report.catalogue_result(listed(own))
        out.show(result, lambda console: report.print_catalogue(result.models, console))
        return
    with out.progress() as say:
        spec = ModelSpec(name, CacheSpec(), revision, assume_full_attention)
        model = find_model(spec, say, own=own)
    out.show(report.model_result(model), lambda console: report.print_model(model, console))


@command(example="h2o-pack schema plan")
@click.argument("name", metavar="COMMAND")
def schema(*, name: str, out: Terminal) -> None:
    """Print the JSON Schema of the output of COMMAND --json.

    "error" is the document of a command that fails.
    """
    from h2o_pack import results

    document = results.schema(name)
    out.show(document, lambda console: console.print_json(data=document))


SHELLS = ("bash", "zsh", "fish")


@command(example='eval "$(h2o-pack completion zsh)"')
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, *, shell: str, out: Terminal) -> None:
    """Print a script that lets SHELL complete commands and options."""
    from click.shell_completion import get_completion_class

    from h2o_pack.results import CompletionResult

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click cannot complete for {shell}", ctx)
    root = ctx.find_root()
    script = kind(root.command, {}, "h2o-pack", "_H2O_PACK_COMPLETE").source()
    result = CompletionResult(shell=shell, script=script)
    out.show(result, lambda _console: click.echo(script))
