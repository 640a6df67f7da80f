"""The `bench` command."""

from __future__ import annotations

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import POSITIVE
from h2o_pack.config_errors import user_errors

LEAST_ROWS = 128


@command(example="h2o-pack bench --model Qwen3-1.7B-4bit --quick")
@click.option("--model", default="demo", help="Alias, folder or hub id.")
@click.option(
    "--max-kv",
    type=click.IntRange(min=LEAST_ROWS),
    default=512,
    help="Rows that each KV head of an H2O cache keeps.",
)
@click.option("--tokens", type=POSITIVE, default=256, help="Tokens to generate.")
@click.option("--quick", is_flag=True, help="Take less than a minute.")
def bench(*, model: str, max_kv: int, tokens: int, quick: bool, out: Terminal) -> None:
    """Measure a model's speed and memory with H2O caches and with mlx-lm's."""
    from h2o_pack.measure.bench import bench as measure
    from h2o_pack.measure.bench import print_bench
    from h2o_pack.measure.models import loadable

    with user_errors("bench"), out.progress() as say:
        result = measure(loadable(model), max_kv, tokens, quick=quick, say=say)
    out.show(result, lambda console: print_bench(result, console))
