"""The README's picture and sample: what `h2o-pack plan` prints.

`python -m docs.docgen.picture --write` runs the two commands below and writes
docs/images/plan.svg and the block between the README's marks. No network is needed: the
catalogue states what `plan` needs of the model.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict
from html import unescape
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from docs.docgen.markdown import fence, replaced

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs/images/plan.svg"
README = ROOT / "README.md"
MARK = "plan"
DEVICES = ("iPhone 13 mini", "iPhone 13 Pro", "iPhone 15 Pro", "iPhone 17 Pro")
CHOSEN = "".join(f" --device '{name}'" for name in DEVICES)
BOUNDED = f"h2o-pack plan --model Qwen3-4B-4bit --max-kv 512{CHOSEN}"
UNBOUNDED = "h2o-pack plan --model Qwen3-4B-4bit --context 32768 --device 'iPhone 17 Pro'"
WIDTH = 104  # columns
REMOTE_FONT = re.compile(r"\s*@font-face \{\{.*?\}\}", re.DOTALL)
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
FORMAT = REMOTE_FONT.sub("", CONSOLE_SVG_FORMAT).replace("Fira Code, monospace", FONTS)
TEXT = re.compile(r'<text class="plan-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>')


def outputs() -> dict[str, str]:
    """Run both commands; return {command: standard output}, with the terminal's colors."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = os.environ | {
            "H2O_PACK_CACHE": scratch,
            "HF_HOME": scratch,
            "XDG_CONFIG_HOME": scratch,
            "COLUMNS": str(WIDTH),
            "FORCE_COLOR": "1",
            "TERM": "xterm-256color",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONUTF8": "1",
        }
        environment.pop("NO_COLOR", None)
        return {command: run(command, environment) for command in (BOUNDED, UNBOUNDED)}


def run(command: str, environment: dict[str, str]) -> str:
    """Run a command line in its own process and return its standard output."""
    arguments = [sys.executable, "-m", "h2o_pack", *shlex.split(command)[1:]]
    done = subprocess.run(  # noqa: S603 - our own program
        arguments, env=environment, capture_output=True, check=True
    )
    return done.stdout.decode("utf-8")


def drawn(command: str, output: str) -> str:
    """Draw a terminal with a command and its output, as SVG."""
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, legacy_windows=False
    )
    console.print(Text(f"$ {command}\n", style="bold"))
    console.print(Text.from_ansi(output.rstrip()))
    return console.export_svg(
        title="h2o-pack plan", theme=MONOKAI, code_format=FORMAT, unique_id="plan"
    )


def shown(svg: str) -> list[str]:
    """Return the words of each line that a drawn terminal shows."""
    lines: dict[float, list[tuple[float, str]]] = defaultdict(list)
    for x, y, text in TEXT.findall(svg):
        lines[float(y)].append((float(x), unescape(text).replace("\xa0", " ")))
    joined = (
        "".join(text for _, text in sorted(pieces)) for _, pieces in sorted(lines.items())
    )
    return [" ".join(line.split()) for line in joined if line.strip()]


def sample(command: str, output: str) -> str:
    """Write a command and its output as Markdown."""
    text = Text.from_ansi(output).plain
    lines = [line.rstrip() for line in text.splitlines()]
    return fence(f"$ {command}\n" + "\n".join(lines))


def main() -> None:
    """Write the picture and the sample, or print the sample."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="change the files")
    write = parser.parse_args().write
    printed = outputs()
    block = sample(UNBOUNDED, printed[UNBOUNDED])
    if not write:
        print(block)  # noqa: T201 - what it is for
        return
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(drawn(BOUNDED, printed[BOUNDED]), encoding="utf-8", newline="\n")
    changed = replaced(README.read_text("utf-8"), MARK, block)
    README.write_text(changed, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
