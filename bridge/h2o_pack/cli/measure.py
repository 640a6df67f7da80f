"""The commands that measure a model: `eval`, `profile`, `budgets` and `bench`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.options import (
    COUNTS,
    FILE,
    NAMES,
    NUMBERS,
    PATH,
    POLICIES,
    POSITIVE,
    sample_options,
)
from h2o_pack.cli.terminal import Terminal
from h2o_pack.config_errors import user_errors
from h2o_pack.errors import ExitCode
from h2o_pack.measure.profiling.options import LEAST_ROWS as LEAST_PROFILED


@command(example="h2o-pack eval --preset demo --output docs/results/eval")
@click.option("--preset", default="demo", help="Name of a preset, or a TOML file.")
@click.option(
    "--model",
    "models",
    type=NAMES,
    help="Short name, folder or hub id; several separated by commas. [default: the preset's]",
)
@click.option("--text", type=FILE, help="UTF-8 text to read. [default: the preset's]")
@click.option(
    "--lengths",
    type=COUNTS,
    help="Tokens per sample, separated by commas. [default: the preset's]",
)
@click.option(
    "--max-kv",
    "budgets",
    type=NAMES,
    help="Rows, or shares such as 1/4, separated by commas. [default: the preset's]",
)
@click.option(
    "--contenders",
    type=NAMES,
    help="Caches, such as default/8, separated by commas. [default: the preset's]",
)
@click.option(
    "--experiments",
    type=NAMES,
    help="Experiments of the preset, separated by commas. [default: all]",
)
@click.option(
    "--seeds",
    type=NUMBERS,
    help="Seeds of the samples, separated by commas. [default: the preset's]",
)
@click.option("--samples", type=POSITIVE, help="Samples per seed. [default: the preset's]")
@click.option("--batch", type=POSITIVE, help="Samples read at once. [default: the preset's]")
@click.option(
    "--generate",
    type=POSITIVE,
    help="Tokens to generate when speed is measured. [default: the preset's]",
)
@click.option("--profile", type=FILE, help="profile.json, for budgets by layer.")
@click.option("--layer-budgets", type=FILE, help="JSON of budgets by layer.")
@click.option("--output", type=PATH, help="Folder for results.json, a page and pictures.")
@click.option("--no-pictures", is_flag=True, help="Draw no pictures, and need no matplotlib.")
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
    """Measure what eviction costs, compared with the full cache.

    Measures perplexity, recall and retention. With --compare, exits with 1 if the interval of
    a figure does not overlap its interval in FILE. Under mlx.launch, the processes share the
    samples: mlx.launch -n 2 -- h2o-pack eval.
    """
    from h2o_pack.measure.evaluation.preset import load_preset
    from h2o_pack.measure.evaluation.run import LayerBudgetsSource, evaluate, join
    from h2o_pack.measure.evaluation.show import print_report
    from h2o_pack.measure.models import loadable

    share = join()
    settings = {name: value for name, value in changes.items() if value is not None}
    with user_errors("eval"), out.progress() as say:
        experiments = load_preset(preset)
        settings["models"] = tuple(map(loadable, models or ()))
        evaluation, unlike = evaluate(
            experiments.changed(**settings),
            share,
            say,
            text=text,
            by_layer=LayerBudgetsSource(layer_budgets, profile),
            output=output,
            pictures=not no_pictures,
            compare=compare,
        )

    def people(console: Any) -> None:
        for report in evaluation.reports:
            print_report(report, console)
        for sentence in unlike:
            console.print(sentence, markup=False)
        if compare is not None:
            verdict = "does not reproduce" if unlike else "reproduces within the intervals"
            console.print(f"{compare} {verdict}", markup=False)

    if share.leads:
        out.show(evaluation, people)
    if unlike:
        sys.exit(ExitCode.DIFFERENT)


@command(example="h2o-pack profile --model demo --output build/profile")
@click.option("--model", required=True, help="Short name, folder, or id on huggingface.co.")
@sample_options
@click.option(
    "--max-kv",
    type=click.IntRange(min=LEAST_PROFILED),
    help="Rows in the cache while a step is timed. [default: tokens / 4]",
)
@click.option("--no-timing", is_flag=True, help="Do not time the parts of a step.")
@click.option("--quick", is_flag=True, help="Time with fewer repetitions.")
@click.option("--output", type=PATH, help="Folder for profile.json, tables and maps.")
def profile(
    *, model: str, no_timing: bool, output: Path | None, out: Terminal, **options: Any
) -> None:
    """Show where layers attend, and the time of each part of a step.

    The model reads a text with mlx_lm's caches. --output writes profile.json, tables
    (profile.md) and maps of attention; `h2o-pack budgets` reads profile.json.
    """
    from h2o_pack.measure.models import loadable
    from h2o_pack.measure.profiling.options import Options
    from h2o_pack.measure.profiling.show import print_profile, profile_and_write

    with user_errors("profile"), out.progress() as say:
        settings = Options(model=loadable(model), time_steps=not no_timing, **options)
        profile = profile_and_write(output, settings, say)
    out.show(profile, lambda console: print_profile(profile, console))


@command(example="h2o-pack budgets --profile build/profile/profile.json --max-kv 256")
@click.option("--profile", type=FILE, help="profile.json, from `h2o-pack profile --output`.")
@click.option(
    "--model",
    help="Model to profile now, with --text: short name, folder, or id on the hub.",
)
@click.option(
    "--max-kv",
    type=POSITIVE,
    required=True,
    help="Tokens that each layer's cache keeps (with reach: on average).",
)
@click.option(
    "--sink-size",
    type=click.IntRange(min=0),
    default=4,
    help="First tokens, which are never evicted.",
)
@click.option(
    "--measure",
    type=click.Choice(["reach", "concentration", "entropy"]),
    default="reach",
    help="How to compare layers. By reach (how far back a layer looks), each layer gets its "
    "own number of rows. By concentration or entropy, each layer gets its own number of heavy "
    "hitters, as published.",
)
@click.option(
    "--policy",
    type=click.Choice(POLICIES),
    default="standard",
    help="With reach: the policy that divides a layer's rows. Give `ios` the same policy.",
)
@click.option(
    "--recall",
    is_flag=True,
    help="Also list the layers that should recall, which find a repeated passage.",
)
@click.option("--output", type=PATH, default=Path("budgets.json"), help="File to write.")
@sample_options
def budgets(
    *,
    profile: Path | None,
    model: str | None,
    text: Path | None,
    tokens: int,
    samples: int,
    out: Terminal,
    **request: Any,
) -> None:
    """Write a budget for each layer, from a profile.

    With --measure reach, layers that look far back get more rows, and others get fewer.
    The average is --max-kv, so memory stays the same, and each layer keeps at least half of
    --max-kv. On the bundled demo model this helps more than any policy does
    (docs/choosing-max-kv.md).

    With --measure concentration or entropy, all layers have --max-kv rows. Of the rows that
    are not sinks, the share of heavy hitters is clip(0.5 + (ratio - 1) * 2.5, 0.3, 0.7), where
    ratio is the layer's measure divided by the mean of all layers. The paper with this rule
    (H2O on MLX, table 14; max_kv 256) found no gain: perplexity 7.803 against 7.807 with
    equal budgets on Qwen3-4B-4bit, and 6.324 against 6.320 on Qwen3-8B-4bit.

    `ios --budgets`, `plan --budgets`, `python -m h2o_py generate --h2o-budgets` and H2OKit
    read the file. Measure with `h2o-pack eval --layer-budgets` before using it.
    """
    from h2o_pack.measure.models import loadable
    from h2o_pack.measure.profiling.options import Options
    from h2o_pack.measure.profiling.rules import make_budgets, print_budgets

    if (profile is None) == (model is None):
        raise click.UsageError("Give either --profile FILE or --model NAME.")
    with user_errors("budgets"), out.progress() as say:
        options = Options(loadable(model or "demo"), text, tokens, samples, time_steps=False)
        result = make_budgets(profile, options, say, **request)
    out.show(result, lambda console: print_budgets(result, console))


LEAST_ROWS = 128


@command(example="h2o-pack bench --model Qwen3-1.7B-4bit --quick")
@click.option("--model", default="demo", help="Short name, folder or hub id.")
@click.option(
    "--max-kv",
    type=click.IntRange(min=LEAST_ROWS),
    default=512,
    help="Tokens that each layer of an H2O cache keeps.",
)
@click.option(
    "--prompt",
    type=POSITIVE,
    help="Tokens of the prompt. [default: a quarter more than --max-kv]",
)
@click.option("--tokens", type=POSITIVE, default=256, help="Tokens to generate.")
@click.option("--quick", is_flag=True, help="Generate fewer tokens.")
def bench(
    *, model: str, max_kv: int, prompt: int | None, tokens: int, quick: bool, out: Terminal
) -> None:
    """Measure a model's speed and memory with each kind of cache."""
    from h2o_pack.measure.bench import bench as measure
    from h2o_pack.measure.bench import print_bench
    from h2o_pack.measure.models import loadable

    with user_errors("bench"), out.progress() as say:
        result = measure(loadable(model), max_kv, tokens, prompt=prompt, quick=quick, say=say)
    out.show(result, lambda console: print_bench(result, console))
