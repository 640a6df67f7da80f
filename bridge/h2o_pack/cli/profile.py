"""The `profile` command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.options import sample_options
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import PATH
from h2o_pack.config_errors import user_errors
from h2o_pack.measure.profiling.options import LEAST_ROWS


@command(example="h2o-pack profile --model demo --output build/profile")
@click.option("--model", required=True, help="Alias, folder, or id on huggingface.co.")
@sample_options
@click.option(
    "--max-kv",
    type=click.IntRange(min=LEAST_ROWS),
    help="Rows in a timed step. [default: tokens / 4]",
)
@click.option("--no-timing", is_flag=True, help="Do not measure where a step's time goes.")
@click.option("--quick", is_flag=True, help="Fewer repetitions when timing.")
@click.option("--output", type=PATH, help="Folder for all files.")
def profile(
    *, model: str, no_timing: bool, output: Path | None, out: Terminal, **options: Any
) -> None:
    """Show what a model's attention looks like and where a step's time goes.

    A text is read through the model with its own caches. --output writes profile.json,
    tables (profile.md) and pictures; `h2o-pack budgets` reads the JSON.
    """
    from h2o_pack.measure.models import loadable
    from h2o_pack.measure.profiling.options import Options
    from h2o_pack.measure.profiling.page import profile_and_write
    from h2o_pack.measure.profiling.profile_tables import print_profile

    with user_errors("profile"), out.progress() as say:
        chosen = Options(model=loadable(model), time_steps=not no_timing, **options)
        found = profile_and_write(output, chosen, say)
    out.show(found, lambda console: print_profile(found, console))
