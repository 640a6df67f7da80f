"""The `budgets` command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.options import sample_options
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import FILE, PATH, POLICIES, POSITIVE
from h2o_pack.config_errors import user_errors


@command(example="h2o-pack budgets --profile build/profile/profile.json --max-kv 256")
@click.option("--profile", type=FILE, help="profile.json, from `h2o-pack profile --output`.")
@click.option(
    "--model",
    help="Profile this model now, on the text below: alias, folder, or id on the hub.",
)
@click.option(
    "--max-kv",
    type=POSITIVE,
    required=True,
    help="Tokens that each layer's cache keeps; with reach, on average.",
)
@click.option(
    "--sink-size",
    type=click.IntRange(min=0),
    default=4,
    help="First tokens, which always stay.",
)
@click.option(
    "--measure",
    type=click.Choice(["reach", "concentration", "entropy"]),
    default="reach",
    help="What layers are compared by. reach, how far back a layer looks, decides its number "
    "of rows; the other two the share of heavy hitters among its rows, as published.",
)
@click.option(
    "--policy",
    type=click.Choice(POLICIES),
    default="standard",
    help="With reach: how a layer's rows are split; give the same to `ios`.",
)
@click.option(
    "--recall",
    is_flag=True,
    help="Also name the layers in which recall pays: those that look past their rows.",
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
    """Write budgets that differ from layer to layer, from a profile.

    By reach, layers that look far back get more rows and others fewer, --max-kv on average:
    the same memory. Each keeps at least half of --max-kv. On the bundled demo model this is
    worth more than any policy (docs/choosing-max-kv.md).

    By concentration or entropy all layers have --max-kv rows, and heavy hitters get
    clip(0.5 + (ratio - 1) * 2.5, 0.3, 0.7) of those beside the sinks, where ratio is the
    layer's measure over the mean of all. The paper that has this rule (H2O on MLX, table 14;
    max_kv 256) found no gain: perplexity 7.803 against 7.807 with equal budgets on
    Qwen3-4B-4bit, and 6.324 against 6.320 on Qwen3-8B-4bit.

    `ios --budgets`, `plan --budgets`, `python -m h2o_py generate --h2o-budgets` and H2OKit
    read the file. Measure with `h2o-pack eval --layer-budgets` before using it.
    """
    from h2o_pack.measure.models import loadable
    from h2o_pack.measure.profiling.options import Options
    from h2o_pack.measure.profiling.rules import BudgetsRequest, make_budgets, print_budgets

    if (profile is None) == (model is None):
        raise click.UsageError("Give --profile FILE or --model NAME: budgets need one profile.")
    with user_errors("budgets"), out.progress() as say:
        options = Options(loadable(model or "demo"), text, tokens, samples, time_steps=False)
        made = make_budgets(profile, options, BudgetsRequest(**request), say)
    out.show(made, lambda console: print_budgets(made, console))
