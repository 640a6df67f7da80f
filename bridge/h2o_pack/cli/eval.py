"""The `eval` command."""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.profile import loadable, told
from h2o_pack.errors import ExitCode

if TYPE_CHECKING:
    from h2o_pack.cli.terminal import Terminal

FILE = click.Path(path_type=Path)
GIVEN = click.Path(path_type=Path, exists=True, dir_okay=False)


@command(example="h2o-pack eval --preset demo --output docs/results/eval")
@click.option("--preset", default="demo", show_default=True, help="A name, or a TOML file.")
@click.option("--model", help="Alias, folder or hub id; several with commas. [preset's]")
@click.option("--text", type=FILE, help="UTF-8 text to read. [preset's]")
@click.option("--lengths", help="Tokens of a sample, with commas. [preset's]")
@click.option("--max-kv", help="Rows, or shares such as 1/4, with commas. [preset's]")
@click.option("--contenders", help="Caches, such as default/8, with commas. [preset's]")
@click.option("--experiments", help="Which of the preset's, with commas. [all]")
@click.option("--seeds", help="Of the samples, with commas. [preset's]")
@click.option("--samples", type=int, help="For each seed. [preset's]")
@click.option("--batch", type=int, help="Samples read at once. [preset's]")
@click.option("--generate", type=int, help="Tokens, where speed is measured. [preset's]")
@click.option("--profile", type=GIVEN, help="profile.json, for budgets by layer.")
@click.option("--layer-budgets", type=GIVEN, help="JSON of budgets by layer.")
@click.option("--output", type=FILE, help="Folder for results.json, a page and pictures.")
@click.option("--no-pictures", is_flag=True, help="Draw nothing: matplotlib is not needed.")
@click.option("--compare", type=FILE, help="results.json that this run must reproduce.")
def eval(  # noqa: A001  the command's name
    *,
    model: str | None,
    compare: Path | None,
    output: Path | None,
    out: Terminal,
    **options: Any,
) -> None:
    """Measure what eviction costs: perplexity, recall and retention beside the full cache.

    With --compare the exit code is 1 where a figure's interval does not meet the earlier
    one. Under mlx.launch the samples are split over the processes:
    mlx.launch -n 2 python -m h2o_py eval.
    """
    from h2o_pack.measure.evaluation import command as library
    from h2o_pack.measure.evaluation.share import join

    share = join()
    with told("eval", output):
        names = None if model is None else ",".join(map(loadable, model.split(",")))
        chosen = library.options_of(model=names, output=output, **options)
        with out.progress() as say:
            found, unlike = library.checked(chosen, compare, share, say)

    def people(console: Any) -> None:
        library.print_reports(found, console)
        library.print_comparison(compare, unlike, console)

    if share.leads:
        out.show(library.documents(found), people)
    if unlike:
        sys.exit(ExitCode.DIFFERENT)
