"""The `ios` command."""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.types import PinnedRange
from h2o_pack.errors import Problems

if TYPE_CHECKING:
    from h2o_pack.cli.terminal import Terminal


@command(example="h2o-pack ios --model demo --max-kv 64 --output build/Demo")
@click.option("--model", required=True, help="Alias, folder, or id on huggingface.co.")
@click.option("--max-kv", required=True, type=int, help="Tokens each layer's cache keeps.")
@click.option("--output", type=click.Path(path_type=Path), help="Folder. [default: NAME]")
@click.option("--name", help="Name of the package. [default: from the model]")
@click.option("--sink-size", type=int, help="First tokens that always stay. [default: 4]")
@click.option("--heavy-budget", type=int, help="Tokens for heavy hitters. [default: half]")
@click.option("--recent-budget", type=int, help="Newest tokens that stay. [default: the rest]")
@click.option(
    "--score",
    type=click.Choice(["peak", "softmax", "abs_logit"]),
    help="What of the attention is scored. [default: peak]",
)
@click.option("--decay", type=float, help="Factor of a score per query. [default: by --score]")
@click.option("--novelty", type=float, help="Weight of a key's novelty. [default: 2]")
@click.option("--pin", type=PinnedRange(), multiple=True, help="Positions that always stay.")
@click.option("--observation-window", type=int, help="Queries of a chunk that score.")
def ios(
    *,
    model: str,
    output: Path | None,
    name: str | None,
    pin: tuple[tuple[int, int], ...],
    out: Terminal,
    **options: Any,
) -> None:
    """Make a Swift package with a model and its H2O cache."""
    from h2o_pack import summary
    from h2o_pack.models.resolve import resolve
    from h2o_pack.package import make_package
    from h2o_pack.plan import CacheOptions, cache_config, make_plan

    chosen = CacheOptions(pinned=pin, **options)
    problems = Problems()
    with problems.caught():
        cache_config(chosen)
    with problems.caught():
        found = resolve(model)
    problems.refuse()
    plan = make_plan(found, chosen, name)
    with out.progress() as say:
        say(f"writing {plan.package_name}")
        package = make_package(plan, output or Path(plan.package_name))
    out.show(
        summary.package_document(plan, package),
        lambda console: summary.print_package(plan, package, console),
    )
