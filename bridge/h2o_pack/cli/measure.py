"""The commands that measure a model: `eval`, `profile` and `bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.options import (
    CONTENDERS,
    COUNTS,
    FILE,
    MODEL,
    NAMES,
    NUMBERS,
    PATH,
    POLICIES,
    POSITIVE,
    sample_options,
)
from h2o_pack.cli.terminal import Terminal
from h2o_pack.config_errors import user_errors


@command(example="h2o-pack eval --model SmolLM2-135M-Instruct --quick")
@click.option(
    "--preset",
    type=click.Choice(["chat", "text"]),
    default="chat",
    help="chat: questions about facts in conversations, for models with a chat template. text: "
    "how well a text is predicted.",
)
@click.option(
    "--model",
    "models",
    type=NAMES,
    required=True,
    help="Short name, folder or hub id; several separated by commas.",
)
@click.option(
    "--text",
    type=FILE,
    help="Your own UTF-8 text, of which conversations are made too. [default: prose]",
)
@click.option("--quick", is_flag=True, help="Answer in about a minute, without verdicts.")
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
    type=CONTENDERS,
    help="Caches, such as default/8, separated by commas. [default: the preset's]",
)
@click.option(
    "--seeds",
    type=NUMBERS,
    help="Seeds of the samples, separated by commas. [default: the preset's]",
)
@click.option("--samples", type=POSITIVE, help="Samples per seed. [default: the preset's]")
@click.option("--batch", type=POSITIVE, help="Texts read at once. [default: the preset's]")
@click.option(
    "--layer-budgets",
    type=FILE,
    help="File of `h2o-pack profile --budgets`, for contenders such as default+budgets.",
)
@click.option("--output", type=PATH, help="Folder for results.json and a page.")
def eval(  # noqa: A001  the command's name
    *,
    preset: str,
    models: tuple[str, ...],
    text: Path | None,
    quick: bool,
    layer_budgets: Path | None,
    output: Path | None,
    out: Terminal,
    **changes: Any,
) -> None:
    """Compare fewer rows and bits with the full cache.

    An interrupted run goes on where it stopped if you repeat it. Under mlx.launch, the
    processes share the samples: mlx.launch -n 2 -- h2o-pack eval.
    """
    from h2o_pack.measure.evaluation.evaluation_tables import print_report
    from h2o_pack.measure.evaluation.preset import load_preset
    from h2o_pack.measure.evaluation.runner import evaluate, join
    from h2o_pack.measure.models import loadable

    share = join()
    settings = {name: value for name, value in changes.items() if value is not None}
    with user_errors("eval"), out.progress(log=not out.json) as say:
        experiments = load_preset(preset)
        if quick:
            experiments = experiments.shortened()
        evaluation = evaluate(
            experiments.changed(**settings),
            [loadable(model) for model in models],
            share,
            say,
            text=text,
            layer_budgets=layer_budgets,
            output=output,
        )

    def people(console: Any) -> None:
        for report in evaluation.reports:
            print_report(report, console)

    if share.leads:
        out.show(evaluation, people)


@command(example="h2o-pack profile --model MODEL --max-kv 256 --budgets budgets.json")
@click.option("--model", type=MODEL, help="Short name, folder, or id on huggingface.co.")
@click.option(
    "--profile",
    "earlier",
    type=FILE,
    help="profile.json of an earlier run, instead of --model.",
)
@sample_options
@click.option("--output", type=PATH, help="Folder for profile.json.")
@click.option(
    "--budgets",
    type=PATH,
    help="Also give each layer its own rows, and write them to this file.",
)
@click.option(
    "--max-kv", type=POSITIVE, help="For --budgets: tokens that a layer keeps, on average."
)
@click.option(
    "--sink-size",
    type=click.IntRange(min=0),
    default=4,
    help="For --budgets: first tokens, which are never evicted.",
)
@click.option(
    "--policy",
    type=click.Choice(POLICIES),
    default="standard",
    help="For --budgets: the policy that divides a layer's rows. Give `ios` the same policy.",
)
@click.option(
    "--recall",
    is_flag=True,
    help="For --budgets: only the layers that find a repeated passage recall.",
)
def profile(
    *,
    model: str | None,
    earlier: Path | None,
    output: Path | None,
    budgets: Path | None,
    max_kv: int | None,
    sink_size: int,
    policy: str,
    recall: bool,
    out: Terminal,
    **options: Any,
) -> None:
    """Show where layers attend, and share out rows by it.

    The model reads a text with mlx_lm's caches. --output writes profile.json.

    With --budgets, layers that look far back get more rows, and others get fewer. The average
    is --max-kv, so memory stays the same, and each layer keeps at least half of --max-kv.
    `ios --budgets`, `plan --budgets`, `python -m h2o_py generate --budgets` and H2OKit
    read the file. Measure with `h2o-pack eval --layer-budgets` before using it.
    """
    from h2o_pack.measure.models import loadable
    from h2o_pack.measure.profiling.options import Options
    from h2o_pack.measure.profiling.profile_report import read_profile
    from h2o_pack.measure.profiling.profile_tables import print_profile, profile_and_write
    from h2o_pack.measure.profiling.rules import make_budgets, print_budgets

    if (earlier is None) == (model is None):
        raise click.UsageError("Give either --model NAME or --profile FILE.")
    if (budgets is None) != (max_kv is None):
        raise click.UsageError("Give --budgets FILE and --max-kv together.")
    with user_errors("profile"), out.progress() as say:
        if earlier is not None:
            measured = read_profile(earlier)
        else:
            settings = Options(model=loadable(model or ""), **options)
            measured = profile_and_write(output, settings, say)
        result = None
        if budgets is not None and max_kv is not None:
            result = make_budgets(
                measured,
                max_kv=max_kv,
                sink_size=sink_size,
                policy=policy,
                recall=recall,
                output=budgets,
            )

    def people(console: Any) -> None:
        if earlier is None or result is None:
            print_profile(measured, console)
        if result is not None:
            print_budgets(result, console)

    out.show(result or measured, people)


LEAST_ROWS = 128


@command(example="h2o-pack bench --model Qwen3-1.7B-4bit --quick")
@click.option("--model", default="demo", type=MODEL, help="Short name, folder or hub id.")
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
