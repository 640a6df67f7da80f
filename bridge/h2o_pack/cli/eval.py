"""The `eval` command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import COUNTS, FILE, NAMES, NUMBERS, PATH, POSITIVE
from h2o_pack.config_errors import user_errors
from h2o_pack.errors import ExitCode


@command(example="h2o-pack eval --preset demo --output docs/results/eval")
@click.option("--preset", default="demo", help="A name, or a TOML file.")
@click.option(
    "--model",
    "models",
    type=NAMES,
    help="Alias, folder or hub id; several separated by commas. [preset's]",
)
@click.option("--text", type=FILE, help="UTF-8 text to read. [preset's]")
@click.option(
    "--lengths", type=COUNTS, help="Tokens per sample, separated by commas. [preset's]"
)
@click.option(
    "--max-kv",
    "budgets",
    type=NAMES,
    help="Rows, or shares such as 1/4, separated by commas. [preset's]",
)
@click.option(
    "--contenders",
    type=NAMES,
    help="Caches, such as default/8, separated by commas. [preset's]",
)
@click.option("--experiments", type=NAMES, help="Of the preset, separated by commas. [all]")
@click.option(
    "--seeds", type=NUMBERS, help="Seeds of the samples, separated by commas. [preset's]"
)
@click.option("--samples", type=POSITIVE, help="Samples per seed. [preset's]")
@click.option("--batch", type=POSITIVE, help="Samples read at once. [preset's]")
@click.option(
    "--generate", type=POSITIVE, help="Tokens to generate when speed is measured. [preset's]"
)
@click.option("--profile", type=FILE, help="profile.json, for budgets by layer.")
@click.option("--layer-budgets", type=FILE, help="JSON of budgets by layer.")
@click.option("--output", type=PATH, help="Folder for results.json, a page and pictures.")
@click.option("--no-pictures", is_flag=True, help="Draw nothing: matplotlib is not needed.")
@click.option("--compare", type=FILE, help="results.json that this run must reproduce.")
def eval(  # noqa: A001  the command's name
    *,
    preset: str,
    models: tuple[str, ...] | None,
    text: Path | None,
    profile: Path | None,
    layer_budgets: Path | None,
    output: Path | None,
    no_pictures: bool,
    compare: Path | None,
    out: Terminal,
    **changes: Any,
) -> None:
    """Measure what eviction costs: perplexity, recall and retention beside the full cache.

    With --compare the exit code is 1 where the interval of a figure does not overlap the
    earlier one. Under mlx.launch the samples are split over the processes:
    mlx.launch -n 2 -- h2o-pack eval.
    """
    from h2o_pack.measure.evaluation.evaluate import Options, evaluate
    from h2o_pack.measure.evaluation.loaded import LayerBudgetsSource
    from h2o_pack.measure.evaluation.preset import PresetChanges, load_preset
    from h2o_pack.measure.evaluation.run import join
    from h2o_pack.measure.evaluation.show import print_report
    from h2o_pack.measure.models import loadable

    share = join()
    given = {name: value for name, value in changes.items() if value is not None}
    with user_errors("eval"), out.progress() as say:
        wanted = PresetChanges(models=tuple(map(loadable, models or ())), **given)
        options = Options(
            load_preset(preset).changed(wanted),
            text,
            LayerBudgetsSource(layer_budgets, profile),
            output,
            not no_pictures,
            compare,
        )
        found, unlike = evaluate(options, share, say)

    def people(console: Any) -> None:
        for report in found.reports:
            print_report(report, console)
        for each in unlike:
            console.print(each, markup=False)
        if compare is not None:
            verdict = "does not reproduce" if unlike else "reproduces within the intervals"
            console.print(f"{compare} {verdict}", markup=False)

    if share.leads:
        out.show(found, people)
    if unlike:
        sys.exit(ExitCode.DIFFERENT)
