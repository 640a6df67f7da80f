"""The `budgets` command."""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.profile import loadable, told
from h2o_pack.errors import ExitCode, UserError

if TYPE_CHECKING:
    from h2o_pack.cli.terminal import Terminal


@command(example="h2o-pack budgets --profile build/profile/profile.json --max-kv 256")
@click.option(
    "--profile",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="profile.json, from `h2o-pack profile --output`.",
)
@click.option("--model", help="Profile this model now: alias, folder, or id on the hub.")
@click.option("--max-kv", type=int, required=True, help="Tokens each layer's cache keeps.")
@click.option("--sink-size", type=int, default=4, show_default=True, help="First tokens.")
@click.option(
    "--measure",
    type=click.Choice(["concentration", "entropy"]),
    default="concentration",
    show_default=True,
    help="What a layer is compared by: more of it, more rows for heavy hitters.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("budgets.json"),
    show_default=True,
    help="File to write.",
)
@click.option("--text", type=click.Path(path_type=Path), help="With --model: UTF-8 file.")
@click.option("--tokens", type=int, default=1024, show_default=True, help="With --model.")
@click.option("--samples", type=int, default=4, show_default=True, help="With --model.")
def budgets(
    *,
    profile: Path | None,
    model: str | None,
    max_kv: int,
    sink_size: int,
    measure: Literal["concentration", "entropy"],
    output: Path,
    out: Terminal,
    **options: Any,
) -> None:
    """Write budgets that differ from layer to layer, from a profile.

    Heavy hitters get clip(0.5 + (ratio - 1) * 2.5, 0.3, 0.7) of the rows beside the sinks,
    where ratio is the layer's measure over the mean of all; recent tokens get the rest, at
    least 64 where they can. The file is what --budgets of other commands and H2OKit read.

    The paper that has this rule (H2O on MLX, table 14; max_kv 256) found no gain:
    perplexity 7.803 against 7.807 with equal budgets on Qwen3-4B-4bit, and 6.324 against
    6.320 on Qwen3-8B-4bit. Measure with `h2o-pack eval` before using them.
    """
    from h2o_py.profiling.budgets_command import make, print_budgets
    from h2o_py.profiling.options import Options

    if (profile is None) == (model is None):
        raise UserError(
            "budgets come from one profile",
            remedy="Give --profile FILE or --model NAME.",
            code=ExitCode.USAGE,
        )
    with told("budgets", output):
        chosen = Options(model=loadable(model or "demo"), time_steps=False, **options)
        with out.progress() as say:
            made = make(
                profile=profile,
                options=chosen,
                max_kv=max_kv,
                sink_size=sink_size,
                measure=measure,
                output=output,
                progress=say,
            )
    out.show(made.document(), lambda console: print_budgets(made, console))
