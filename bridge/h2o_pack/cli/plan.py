"""The commands that plan memory: `plan`, and `choose`, which also looks for what is open."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.options import (
    cache_options,
    choice_options,
    device_options,
    max_kv_option,
    model_options,
    models_options,
    recall_options,
    settings,
    spec_of,
)
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import FILE, PATH
from h2o_pack.errors import ExitCode, Problems


@command(example="h2o-pack plan --model Qwen3-4B-4bit --max-kv 512 --device 'iPhone 16 Pro'")
@models_options
@max_kv_option("the model's own cache, which grows")
@cache_options
@recall_options
@settings()
@device_options("Several may be given.")
@choice_options
@click.option("--all", "every", is_flag=True, help="All devices, not one of each kind.")
@click.option(
    "--measured",
    type=FILE,
    help="JSON of what a device reported: planned and seen are shown side by side.",
)
@click.option("--html", type=PATH, help="File to write a page to.")
def plan(
    *,
    every: bool,
    measured: Path | None,
    html: Path | None,
    min_speed: float | None,
    losses: Path | None,
    out: Terminal,
    **options: Any,
) -> None:
    """Plan the memory of a model on devices, and estimate its speed.

    Reads the model's configuration and headers only, never its weights. Needs no network for
    a model of the catalogue (`h2o-pack models` lists them). Of several models it says which one
    their app loads on each device. Without --model it chooses, as `h2o-pack choose` does, and
    plans what it chose.
    """
    from h2o_pack.choice.choice import ChosenPlan, print_chosen
    from h2o_pack.choice.choose import Criteria, chosen_plan
    from h2o_pack.plan.device_fit import PlanResult, plan_on_devices
    from h2o_pack.plan.page import write_page
    from h2o_pack.plan.plan_tables import print_plan

    problems = Problems()
    spec = spec_of(options, problems)
    problems.refuse()
    result: PlanResult
    with out.progress() as say:
        if spec.models[0].model is None:
            result = chosen_plan(spec, Criteria(min_speed, losses), say)
        else:
            result = plan_on_devices(spec, say, every=every, measured=measured)
    if html is not None:
        write_page(result, html)
    if isinstance(result, ChosenPlan):
        chosen = result
        out.show(result, lambda console: print_chosen(chosen, console))
    else:
        out.show(result, lambda console: print_plan(result, console))


@command(example='h2o-pack choose --device "iPhone 15" --context 16384')
@device_options("All of them must hold it; several may be given.")
@model_options
@max_kv_option("chosen")
@cache_options
@recall_options
@settings()
@choice_options
@click.option("--asset-pack", is_flag=True, help="The model comes apart from the app.")
def choose(
    *, min_speed: float | None, losses: Path | None, out: Terminal, **options: Any
) -> None:
    """Show which model and which cache suit some devices, and why not the others.

    What is given is kept and the rest is chosen: the largest model of the catalogue that
    leaves a tenth of the memory free, and the cache that loses least by a table of measured
    losses. `ios` and `plan` choose in the same way what they are not given.
    """
    from h2o_pack.choice.choice import print_choice
    from h2o_pack.choice.choose import Criteria, show_candidates

    problems = Problems()
    spec = spec_of(options, problems)
    problems.refuse()
    with out.progress() as say:
        choice = show_candidates(spec, Criteria(min_speed, losses), say)
    out.show(choice, lambda console: print_choice(choice, console))
    if choice.chosen is None:
        sys.exit(ExitCode.MEMORY)
