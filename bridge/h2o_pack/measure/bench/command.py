"""`python -m h2o_py bench`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from h2o_pack.measure.bench.options import DTYPES, Options

if TYPE_CHECKING:
    from h2o_pack.measure.bench.report import Report
    from h2o_pack.measure.bench.run import Progress


def main(arguments: Sequence[str]) -> int:
    """Measure, and print the report; returns the exit status (2: wrong usage)."""
    parser = _parser()
    given = vars(parser.parse_args(arguments))
    as_json, plot, write = (given.pop(name) for name in ("json", "plot", "write"))
    given["dtypes"] = tuple(given.pop("dtype").split(","))
    try:
        options = Options(**given)
        report = measure(options, plot=plot, write=write, progress=say)
    except ValueError as error:
        parser.error(str(error))
    if as_json:
        sys.stdout.write(report.to_json() + "\n")
        return 0
    from rich.console import Console  # noqa: PLC0415  after --help has been served

    from h2o_pack.measure.bench.tables import print_report  # noqa: PLC0415

    print_report(report, Console(highlight=False, soft_wrap=True))
    return 0


def measure(
    options: Options, *, plot: Path | None, write: Path | None, progress: Progress
) -> Report:
    """Run, and write the picture and the page that are asked for.

    Raises:
        ValueError: the model cannot be loaded, or matplotlib is missing.

    """
    from h2o_pack.measure.bench import markdown  # noqa: PLC0415  after --help has been served
    from h2o_pack.measure.bench import plot as picture  # noqa: PLC0415
    from h2o_pack.measure.bench.run import run  # noqa: PLC0415

    if plot is not None:
        picture.require()
    report = run(options, progress)
    if plot is not None:
        plot.parent.mkdir(parents=True, exist_ok=True)
        picture.save(report, plot)
    if write is not None:
        write.parent.mkdir(parents=True, exist_ok=True)
        before = write.read_text("utf-8") if write.exists() else ""
        page = markdown.render(report) + markdown.kept(before)
        write.write_text(page, encoding="utf-8")
    return report


def say(text: str) -> None:
    """Tell what is being done, if somebody looks at it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{text} ...\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m h2o_py bench",
        description="Measure H2O caches beside mlx-lm's, in one process.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--heads", type=int, default=32, help="Query heads of the layer.")
    parser.add_argument("--kv-heads", type=int, default=8, help="KV heads of the layer.")
    parser.add_argument("--head-dim", type=int, default=128, help="Elements of a key.")
    parser.add_argument("--capacity", type=int, default=512, help="Rows that a head keeps.")
    parser.add_argument("--dtype", default=",".join(DTYPES), help="One or more, with commas.")
    parser.add_argument("--model", default="demo", help="What mlx_lm loads, or demo.")
    parser.add_argument("--tokens", type=int, default=256, help="Tokens to generate.")
    parser.add_argument("--quick", action="store_true", help="A run of less than a minute.")
    parser.add_argument("--json", action="store_true", help="Print the report as JSON.")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="Draw the report.")
    parser.add_argument("--write", type=Path, metavar="FILE.md", help="Write it as a page.")
    return parser
