"""Commands that plan, and that list devices and models."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from h2o_pack.cli import options as common
from h2o_pack.cli.frame import command
from h2o_pack.cli.terminal import Terminal
from h2o_pack.errors import ExitCode, Problems, usage_error
from h2o_pack.spec import CacheSpec, ModelSpec


@command(example='h2o-pack plan --device "iPhone 15 Pro"')
@common.model_options(several=True)
@common.cache_options(max_kv="a cache that keeps every token")
@common.settings
@common.device_options("Repeat it for several devices.")
@common.choice_options
@click.option("--asset-pack", is_flag=True, help="Choose a model that stays out of the app.")
@click.option(
    "--all", "every", is_flag=True, help="Show all devices instead of one of each kind."
)
@click.option(
    "--measured",
    type=common.FILE,
    help="JSON file of the app's measuring screen, to compare with the plan.",
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
    """Plan memory and speed on devices, or choose a model.

    Reads only the model's configuration and headers, never its weights. Needs no network for
    a model of the catalogue (`h2o-pack models` lists them). With several models, shows which
    one the app loads on each device.

    Without --model, shows which models and caches fit on the devices, and chooses as `ios`
    does: the best model of the catalogue, by published results, that leaves a tenth of the
    memory free, and the cache that loses least in a table of measured losses.
    """
    from h2o_pack.choice.choice import print_choice
    from h2o_pack.choice.choose import Criteria, refuse_without_choice, show_candidates
    from h2o_pack.plan.device_fit import plan_on_devices
    from h2o_pack.plan.plan_tables import print_plan, write_page

    problems = Problems()
    spec = common.spec_of(options, problems)
    problems.refuse()
    criteria = common.part(Criteria, options)
    if spec.models[0].model is None:
        refuse_given(
            "without --model", {"--all": every, "--measured": measured, "--html": html}
        )
        with out.progress() as say:
            choice = show_candidates(spec, criteria, say)
        out.show(choice, lambda console: print_choice(choice, console, verbose=out.verbose))
        if choice.chosen is None:
            sys.exit(ExitCode.MEMORY)
        return
    refuse_given("with --model", {"--asset-pack": spec.delivery.asset_pack})
    refuse_without_choice(criteria)
    with out.progress() as say:
        result = plan_on_devices(spec, say, every=every, measured=measured)
    if html is not None:
        write_page(result, html)
    out.show(result, lambda console: print_plan(result, console, verbose=out.verbose))


def refuse_given(when: str, flags: dict[str, object]) -> None:
    """Raise UserError for options that `plan` cannot use."""
    given = [flag for flag, value in flags.items() if value]
    if given:
        raise usage_error(
            f"plan cannot use {' and '.join(given)} {when}",
            "Without --model it chooses a model, and with --model it plans one.",
        )


@command(example='h2o-pack devices "iPhone 17 Pro"')
@click.argument("name", type=common.DEVICE, required=False)
@click.option(
    "--devices",
    "own",
    type=common.PATH,
    help="TOML file with your own devices. [default: $H2O_PACK_DEVICES, or "
    "devices.toml in the user's configuration folder]",
)
@click.option("--all", "every", is_flag=True, help="Show a row for each identifier.")
def devices(*, name: str | None, own: Path | None, every: bool, out: Terminal) -> None:
    """List iPhones and iPads: memory, limit of an app, bandwidth.

    With NAME (an identifier, a name, or part of a name), shows the identifiers and the source
    of each number.
    """
    from h2o_pack.devices.catalogue import DevicesResult, catalogue, print_devices

    entries = catalogue(own)
    devices = entries.find(name) if name else entries.all_devices()
    out.show(
        DevicesResult(files=entries.files, devices=devices),
        lambda console: print_devices(
            devices, console, sources=bool(name), identifiers=every or bool(name)
        ),
    )


@command(example="h2o-pack models Qwen3-4B-4bit")
@click.argument("name", type=common.MODEL, required=False)
@common.revision_option
def models(*, name: str | None, revision: str, out: Terminal) -> None:
    """List the known models, the best first, or describe one.

    The order is that of published results. NAME is a name in the list, a folder, or an id on
    the hub: shows its published results with their source, and reads only its metadata.

    Your own models are in the TOML file that $H2O_PACK_MODELS names, or in models.toml in the
    user's configuration folder, in the format of h2o_pack/facts/models.toml.
    """
    from h2o_pack.hub.resolve import describe_model, listed
    from h2o_pack.models import model_tables as report

    if name is None:
        result = report.catalogue_result(listed())
        out.show(result, lambda console: report.print_catalogue(result.models, console))
        return
    with out.progress() as say:
        spec = ModelSpec(name, CacheSpec(), revision)
        model, known = describe_model(spec, say)
    out.show(
        report.model_result(model, known),
        lambda console: report.print_model(model, known, console),
    )
