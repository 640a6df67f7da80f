"""How quick the commands are; `python -m tests.bridge.speed --write` writes the figures.

Each command is a process of its own. Times are the least of several runs, and ratios
those to `python -c "import click"`, measured in turn with them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from h2o_pack.measure.machine import BusyMachine, describe_busy

PAGE = Path(__file__).parents[2] / "docs/performance.md"
BEGIN, END = "<!-- command speed: begin -->\n", "<!-- command speed: end -->\n"
RUNS = 7
TOOL = "from h2o_pack.cli import main; main()"


@dataclass(frozen=True)
class Case:
    """A command, and the seconds that it should stay under."""

    name: str
    arguments: tuple[str, ...]
    goal: float | None


CASES = (
    Case('python -c "import click"', (), None),
    Case("h2o-pack --help", ("--help",), 0.3),
    Case(
        "h2o-pack plan, all devices",
        ("plan", "--model", "demo", "--max-kv", "256", "--json"),
        1.0,
    ),
    Case(
        "h2o-pack ios, the bundled demo model",
        (
            "ios",
            "--model",
            "demo",
            "--max-kv",
            "256",
            "--output",
            "{folder}/Demo",
            "--no-vendor",
            "--json",
        ),
        3.0,  # mlx-lm, imported to see whether the model loads, takes most of it
    ),
)


def seconds(case: Case, folder: str) -> float:
    """Run a command once."""
    code = TOOL if case.arguments else "import click"
    arguments = [each.format(folder=folder) for each in case.arguments]
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - begin


def measure(runs: int = RUNS) -> list[float]:
    """Return the least seconds of each case, all measured in turn."""
    with tempfile.TemporaryDirectory() as folder:
        rounds = [[seconds(case, folder) for case in CASES] for _ in range(runs)]
    return [min(each) for each in zip(*rounds, strict=True)]


def to_markdown(machine: BusyMachine, times: list[float]) -> str:
    """Write the table."""
    lines = [
        f"{machine.processor}, {machine.cores} cores, Python {machine.python}; the least of "
        f"{RUNS} runs, all cases in turn; load {machine.load} when it began.",
        "",
        '| command | seconds | of `python -c "import click"` | goal |',
        "|---|---|---|---|",
    ]
    for case, taken in zip(CASES, times, strict=True):
        goal = f"under {case.goal} s" if case.goal else "-"
        verdict = "" if case.goal is None else ", met" if taken < case.goal else ", missed"
        lines.append(
            f"| `{case.name}` | {taken:.2f} | {taken / times[0]:.1f} | {goal}{verdict} |"
        )
    return "\n".join(lines) + "\n"


def renewed(page: str, table: str) -> str:
    """Return a page with the table in place of the one that it has."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}{table}{END}{rest.split(END)[1]}"


def main() -> None:
    """Print the table; with --write, put it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    machine = describe_busy()
    table = to_markdown(machine, measure())
    print(table)  # noqa: T201
    if write:
        PAGE.write_text(renewed(PAGE.read_text("utf-8"), table), "utf-8")


if __name__ == "__main__":
    main()
