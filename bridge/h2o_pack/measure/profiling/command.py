"""`python -m h2o_py profile`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from h2o_pack.measure.bench.command import say
from h2o_pack.measure.profiling.options import Options

if TYPE_CHECKING:
    from rich.console import Console

    from h2o_pack.measure.profiling.report import Profile


def main(arguments: Sequence[str]) -> int:
    """Profile, and print the tables; returns the exit status (2: wrong usage)."""
    parser = _parser()
    given = vars(parser.parse_args(arguments))
    as_json, output = given.pop("json"), given.pop("output")
    given["time_steps"] = not given.pop("no_timing")
    try:
        profile = measure(Options(**given), output=output, progress=say)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    if as_json:
        sys.stdout.write(profile.to_json() + "\n")
        return 0
    from rich.console import Console  # noqa: PLC0415  after --help has been served

    print_profile(profile, Console(highlight=False, soft_wrap=True))
    return 0


def measure(
    options: Options, *, output: Path | None, progress: Callable[[str], None]
) -> Profile:
    """Run, and write the folder that is asked for.

    Raises:
        ValueError: the model cannot be loaded, the text is too short, or matplotlib is
            missing and a folder is asked for.
        OSError: the folder cannot be written.

    """
    from h2o_pack.measure.profiling.run import run  # noqa: PLC0415  after --help has been served

    if output is not None:
        from h2o_pack.measure.bench import plot  # noqa: PLC0415

        plot.require()
        output.mkdir(parents=True, exist_ok=True)
    profile, maps = run(options, progress)
    if output is not None:
        from h2o_pack.measure.profiling import page  # noqa: PLC0415

        page.write(profile, maps, output)
    return profile


def print_profile(profile: Profile, console: Console) -> None:
    """Show every table."""
    from h2o_pack.measure.bench.tables import print_section  # noqa: PLC0415
    from h2o_pack.measure.profiling.sections import headline, machine_line, sections  # noqa: PLC0415

    for section in sections(profile):
        print_section(section, console)
    if profile.step is None:
        console.print(f"no step was timed: {profile.step_missing}", markup=False)
    console.print(headline(profile), markup=False)
    console.print(machine_line(profile), markup=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m h2o_py profile",
        description="What a model's attention looks like, and where a step's time goes.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--model", default="demo", help="What mlx_lm loads, or demo.")
    parser.add_argument("--text", type=Path, help="UTF-8 file to read; else held-out text.")
    parser.add_argument("--tokens", type=int, default=1024, help="Tokens of a sample.")
    parser.add_argument("--samples", type=int, default=4, help="Pieces of the text.")
    parser.add_argument("--max-kv", type=int, help="Rows in a timed step; else tokens / 4.")
    parser.add_argument("--no-timing", action="store_true", help="Leave the step's time out.")
    parser.add_argument("--quick", action="store_true", help="Fewer repetitions when timing.")
    parser.add_argument("--output", type=Path, help="Folder for JSON, tables and pictures.")
    parser.add_argument("--json", action="store_true", help="Print the profile as JSON.")
    return parser
