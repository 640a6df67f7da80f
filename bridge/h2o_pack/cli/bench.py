"""The `bench` command."""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.profile import loadable, told

if TYPE_CHECKING:
    from h2o_pack.cli.terminal import Terminal


@command(example="h2o-pack bench --quick")
@click.option("--heads", type=int, default=32, show_default=True, help="Query heads.")
@click.option("--kv-heads", type=int, default=8, show_default=True, help="KV heads.")
@click.option("--head-dim", type=int, default=128, show_default=True, help="Size of a key.")
@click.option("--capacity", type=int, default=512, show_default=True, help="Rows kept.")
@click.option(
    "--dtype",
    default="float16,bfloat16,float32",
    show_default=True,
    help="One or more, with commas.",
)
@click.option("--model", default="demo", show_default=True, help="Alias, folder or hub id.")
@click.option("--tokens", type=int, default=256, show_default=True, help="To generate.")
@click.option("--quick", is_flag=True, help="A run of less than a minute.")
@click.option("--plot", type=click.Path(path_type=Path), help="PNG to draw the report in.")
@click.option("--write", type=click.Path(path_type=Path), help="Page to write the report to.")
def bench(
    *,
    dtype: str,
    model: str,
    plot: Path | None,
    write: Path | None,
    out: Terminal,
    **options: Any,
) -> None:
    """Measure H2O caches beside mlx-lm's on this machine."""
    from h2o_pack.measure.bench.command import measure
    from h2o_pack.measure.bench.options import Options
    from h2o_pack.measure.bench.tables import print_report

    with told("bench", write or plot):
        chosen = Options(dtypes=tuple(dtype.split(",")), model=loadable(model), **options)
        with out.progress() as say:
            report = measure(chosen, plot=plot, write=write, progress=say)
    out.show(json.loads(report.to_json()), lambda console: print_report(report, console))
