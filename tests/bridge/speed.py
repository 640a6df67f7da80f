"""How quick the commands are; `python -m tests.bridge.speed --write` writes the figures.

Each command is a process of its own. Times are the least of several runs, and ratios
those to `python -c "import click"`, measured in turn with them.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from docs.docgen.markdown import replaced, table
from h2o_pack.measure.machine import describe

PAGE = Path(__file__).parents[2] / "docs/results/speed.md"
MARK = "command speed"
RUNS = 7
CLICK = "import click"
TOOL = "from h2o_pack.cli import main; main()"
MODEL = ("--model", "demo", "--max-kv", "256", "--json")
CASES: dict[str, tuple[float, tuple[str, ...]]] = {
    "h2o-pack --help": (0.3, ("--help",)),
    "h2o-pack plan, all devices": (1.0, ("plan", *MODEL)),
    # mlx-lm, imported to see whether the model loads, takes most of it
    "h2o-pack ios, the bundled demo model": (3.0, ("ios", *MODEL, "--no-vendor")),
}
"""The seconds that a command should stay under, and its arguments."""


def seconds(code: str, *arguments: str) -> float:
    """Run a program once, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", code, *arguments]
        begin = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)
        return time.perf_counter() - begin


def measured(runs: int = RUNS) -> str:
    """Measure all cases in turn, and return them as Markdown."""
    machine = describe()
    programs = [(CLICK,), *((TOOL, *arguments) for _, arguments in CASES.values())]
    rounds = [[seconds(*program) for program in programs] for _ in range(runs)]
    click, *times = [min(seconds) for seconds in zip(*rounds, strict=True)]
    rows = [(f'`python -c "{CLICK}"`', f"{click:.2f}", "1.0", "-")]
    for duration, (name, (goal, _)) in zip(times, CASES.items(), strict=True):
        verdict = "met" if duration < goal else "missed"
        ratio = f"{duration / click:.1f}"
        rows.append((f"`{name}`", f"{duration:.2f}", ratio, f"under {goal} s, {verdict}"))
    head = ("command", "seconds", f'of `python -c "{CLICK}"`', "goal")
    return (
        f"{machine.processor}, {machine.cores} cores, Python {machine.python}; the fastest "
        f"of {runs} runs, in which the commands alternate; load {machine.load} at the "
        "start.\n\n"
        f"{table(head, rows)}"
    )


if __name__ == "__main__":
    text = measured()
    print(text)  # noqa: T201
    if "--write" in sys.argv:
        PAGE.write_text(replaced(PAGE.read_text("utf-8"), MARK, text), "utf-8")
