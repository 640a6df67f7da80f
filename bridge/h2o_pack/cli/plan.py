"""The `plan` command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.options import (
    cache_options,
    choice_options,
    device_options,
    given_of,
    max_kv_option,
    models_options,
    recall_options,
    settings,
)
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import FILE, PATH
from h2o_pack.errors import Problems


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
    models: tuple[str, ...],
    every: bool,
    measured: Path | None,
    html: Path | None,
    out: Terminal,
    **options: Any,
) -> None:
    """Plan the memory of a model on devices, and estimate its speed.

    Reads the model's configuration and headers only, never its weights. Needs no network for
    a model of the catalogue (`h2o-pack models` lists them). Of several models it says which one
    their app loads on each device. Without --model it chooses, as `h2o-pack choose` does, and
    plans what it chose.
    """
    from h2o_pack.choice.command import chosen_plan
    from h2o_pack.choice.tables import print_chosen
    from h2o_pack.plan import command as planned
    from h2o_pack.plan import tables as plan_tables
    from h2o_pack.plan.measured import read_measured
    from h2o_pack.plan.several_tables import print_reports

    given = given_of({**options, "model": None})
    if not models:
        with out.progress() as say:
            choice, report = chosen_plan(given, say)
        if html is not None:
            planned.write_page(report, html)
        out.show(choice, lambda console: print_chosen(choice, report, console))
        return
    problems = Problems()
    names = given.devices
    with problems.caught():
        planned.refuse_of_one(models, revision=given.revision, measured=measured)
        seen = read_measured(measured) if measured is not None else None
        names = given.devices if seen is None else (*given.devices, seen.device)
    with problems.caught():
        known, devices = planned.find_devices(names, given.own, every=every)
    found = []
    with out.progress() as say:
        for model in models:
            with problems.caught():
                found.append(given.find_model(model, say))
    problems.refuse()
    bounded = given.max_kv is not None
    options_given = given.cache(given.max_kv or 0)
    if len(found) > 1:
        reports = planned.report_several(found, options_given, known, devices, bounded=bounded)
        if html is not None:
            planned.write_page(reports, html)
        out.show(reports, lambda console: print_reports(reports, console))
        return
    report = planned.report(found[0], options_given, known, devices, bounded=bounded)
    if seen is not None:
        report = planned.with_measured(report, seen, known)
    if html is not None:
        planned.write_page(report, html)
    out.show(report, lambda console: plan_tables.print_report(report, console))
