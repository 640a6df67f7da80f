"""The `profile` command."""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from h2o_pack.cli.frame import command
from h2o_pack.errors import ExitCode, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from h2o_pack.cli.terminal import Terminal


@command(example="h2o-pack profile --model demo --output build/profile")
@click.option("--model", required=True, help="Alias, folder, or id on huggingface.co.")
@click.option("--text", type=click.Path(path_type=Path), help="UTF-8 file. [default: ours]")
@click.option("--tokens", type=int, default=1024, show_default=True, help="Of a sample.")
@click.option("--samples", type=int, default=4, show_default=True, help="Pieces of the text.")
@click.option("--max-kv", type=int, help="Rows in a timed step. [default: tokens / 4]")
@click.option("--no-timing", is_flag=True, help="Leave out where a step's time goes.")
@click.option("--quick", is_flag=True, help="Fewer repetitions when timing.")
@click.option("--output", type=click.Path(path_type=Path), help="Folder for all files.")
def profile(
    *, model: str, no_timing: bool, output: Path | None, out: Terminal, **options: Any
) -> None:
    """Show what a model's attention looks like and where a step's time goes.

    A text is read through the model with its own caches. --output writes profile.json,
    tables (profile.md) and pictures; `h2o-pack budgets` reads the JSON.
    """
    from h2o_pack.measure.profiling.command import measure, print_profile
    from h2o_pack.measure.profiling.options import Options

    with told("profile", output):
        chosen = Options(model=loadable(model), time_steps=not no_timing, **options)
        with out.progress() as say:
            found = measure(chosen, output=output, progress=say)
    out.show(json.loads(found.to_json()), lambda console: print_profile(found, console))


def loadable(name: str) -> str:
    """Return what mlx_lm loads for an alias, a folder or an id on the hub.

    Raises:
        UserError: the name leads nowhere.

    """
    from h2o_pack.hub.resolve import HUB_ID, local_folder, unknown
    from h2o_pack.models.catalogue import find

    known = find(name)
    if known is not None:
        return known.embedded or known.hub or known.folder
    if local_folder(name) is None and not HUB_ID.fullmatch(name):
        raise unknown(name, None)
    return name


@contextmanager
def told(command_name: str, output: Path | None) -> Iterator[None]:
    """Make what h2o_py refuses an error for the user."""
    try:
        yield
    except ValueError as error:
        what, _, remedy = str(error).partition(". ")
        code = ExitCode.MODEL if what.startswith("model = ") else ExitCode.USAGE
        remedy = remedy or f"See `h2o-pack {command_name} --help`."
        raise UserError(what.rstrip("."), remedy=remedy, code=code) from error
    except OSError as error:
        if error.filename is None:
            raise
        raise unusable(Path(error.filename), output, error) from error


def unusable(file: Path, output: Path | None, error: OSError) -> UserError:
    """Make the error for a file that cannot be written, or else read."""
    why = error.strerror or str(error)
    if output is not None and (file == output or output in file.parents):
        return UserError(
            f"{file} cannot be written: {why}",
            remedy="Give another --output.",
            code=ExitCode.OUTPUT,
        )
    return UserError(
        f"{file} cannot be read: {why}",
        remedy="Give a file that you may read.",
        code=ExitCode.USAGE,
    )
