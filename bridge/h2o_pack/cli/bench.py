"""The `bench` command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import PATH, POSITIVE, CommaSeparated
from h2o_pack.config_errors import user_errors
from h2o_pack.measure.bench.options import DTYPES, HEAD_DIMS, LEAST_CAPACITY


@command(example="h2o-pack bench --quick")
@click.option("--heads", type=POSITIVE, default=32, help="Query heads.")
@click.option("--kv-heads", type=POSITIVE, default=8, help="KV heads.")
@click.option(
    "--head-dim",
    type=click.Choice([str(dim) for dim in HEAD_DIMS]),
    default="128",
    help="Elements of a key.",
)
@click.option(
    "--capacity",
    type=click.IntRange(min=LEAST_CAPACITY),
    default=512,
    help="Rows that each KV head keeps.",
)
@click.option(
    "--dtype",
    type=CommaSeparated(click.Choice(DTYPES)),
    default=",".join(DTYPES),
    help="One or more, separated by commas.",
)
@click.option("--model", default="demo", help="Alias, folder or hub id.")
@click.option("--tokens", type=POSITIVE, default=256, help="Tokens to generate.")
@click.option("--quick", is_flag=True, help="Take less than a minute.")
@click.option("--plot", type=PATH, help="PNG to draw the report in.")
@click.option("--write", type=PATH, help="Page to write the report to.")
def bench(
    *,
    head_dim: str,
    dtype: tuple[str, ...],
    model: str,
    plot: Path | None,
    write: Path | None,
    out: Terminal,
    **options: Any,
) -> None:
    """Measure H2O caches beside mlx-lm's on this machine."""
    from h2o_pack.measure.bench.options import Options
    from h2o_pack.measure.bench.report_tables import print_report
    from h2o_pack.measure.bench.run import bench as measure
    from h2o_pack.measure.models import loadable

    with user_errors("bench"), out.progress() as say:
        chosen = Options(dtypes=dtype, head_dim=int(head_dim), model=loadable(model), **options)
        report = measure(chosen, picture=plot, text=write, say=say)
    out.show(report, lambda console: print_report(report, console))
