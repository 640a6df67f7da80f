"""A stranger's first ten minutes, in a terminal of 80 columns.

The stranger clones the repository, types what README says, and makes three mistakes. All of it
is compared with tests/golden/ten-minutes.txt. `.ci/ten-minutes` types every line into bash, and
so compiles the core and a package. `make test` types only the lines that begin with `h2o-pack`,
into one process, which imports the libraries once.

This module imports nothing that a fresh clone lacks.
"""

from __future__ import annotations

import argparse
import difflib
import math
import re
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.processes import ROOT
from tests.pseudo_terminal import COLUMNS, in_terminal

GOLDEN = ROOT / "tests/golden/ten-minutes.txt"
README = ROOT / "README.md"
COMMAND = "h2o-pack "
PHONE = '--device "iPhone 15 Pro"'
PYTHON = 'python -c "$EXAMPLE"'
# The bundled model needs no download. Its first token is the same on every CPU.
WITH_DEMO = {
    "chat": " --model demo --temperature 0 --max-tokens 1",
    "ios": " --model demo",
}
TYPED_IN_CHAT = ("def main", "/help", "/quit")
MORE = ("models", f"plan --model Qwen3-4B-4bit {PHONE}")
MISTAKES = (
    "ios --modle demo",
    'plan --model Qwen4-4B --device "iPhone 11"',
    "ios --model docs --max-kv 64",
)
MASKS = (
    (re.compile(r"(?<=-)[0-9a-f]{8}(?=\): written to App)"), "########"),
    (re.compile(r"\d\.\de[+-]\d\d"), "#.#e-##"),
    (re.compile(r"^\d+ ok, .*", re.MULTILINE), "# ok ..."),
)
"""What differs between machines or runs, and what the golden file has instead."""
CHECK = re.compile(r"^(\S.*?)  +(?:ok|warning|problem|not applicable)\b")
PROMPT = re.compile(r"\n(?:\x1b\[[?0-9;]*[a-z])*[>$] $")
LONGEST = 20 * 60.0
"""Seconds that a line may take."""
BASH = ("bash", "--norc", "--noprofile", "--noediting", "-i")
ONE_PROCESS = r"""
import shlex, sys
from h2o_pack.cli import main
code = 0
while True:
    print(f"[{code}]\n$ ", end="", flush=True)
    line = sys.stdin.readline()
    if line == "exit\n":
        break
    try:
        main(shlex.split(line)[1:], prog_name="h2o-pack")
    except SystemExit as end:
        code = end.code or 0
"""
"""A shell that knows no command but h2o-pack."""


def script() -> list[str]:
    """Return the lines that the stranger types into the shell."""
    shown = [line for line in code("Quick start", "sh") if line.startswith(COMMAND)]
    own = (*MORE, *MISTAKES)
    [demo] = [line for line in code("Try it without a Mac", "sh") if line == "make demo"]
    return [
        'git clone --quiet "$REPOSITORY" h2o-pack',
        "cd h2o-pack",
        *code("Install", "sh"),
        *(line + WITH_DEMO.get(line.split()[1], "") for line in shown),
        *(COMMAND + words for words in own),
        PYTHON,
        demo,
        f"cd .. && h2o-pack doctor && {PYTHON}",
    ]


def code(section: str, language: str) -> list[str]:
    """Return the lines of code in a section of the README, without comments."""
    text = README.read_text("utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    block = text.partition(f"\n```{language}\n")[2].partition("\n```")[0]
    return [re.sub(" +#.*", "", line) for line in block.splitlines()]


def example() -> str:
    """Return the README's Python, with the bundled model."""
    demo = repr(f"{ROOT}/bridge/h2o_pack/models/demo")
    return re.sub(r'"mlx-community/[^"]*"', demo, "\n".join(code("Quick start", "python")))


def sections(lines: Sequence[str], shell: Sequence[str]) -> list[str]:
    """Type lines into a shell; return each with what the screen then shows, masked."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "docs").mkdir()
        (folder / "docs/notes.md").touch()
        env = {
            "EXAMPLE": example(),
            "REPOSITORY": str(ROOT),
            "PS1": r"[$?]\n$ ",
            "VIRTUAL_ENV_DISABLE_PROMPT": "1",
            "XDG_CONFIG_HOME": f"{folder}/.config",
            "H2O_PACK_CACHE": f"{folder}/.cache",
            "HF_HUB_OFFLINE": "1",
            # The sources of mlx-swift, which a build needs, take minutes to download.
            "H2O_PACK_VENDOR": "0",
            "H2O_PACK_CHECK_TEXT": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        with in_terminal(*shell, cwd=folder, env=env) as session:
            session.wait_for_end(PROMPT, 0)
            for line in lines:
                answers = TYPED_IN_CHAT if line.startswith(f"{COMMAND}chat ") else ()
                for keys in (line, *answers):
                    start = len(session.raw)
                    session.type(f"{keys}\n")
                    session.wait_for_end(PROMPT, start, LONGEST)
            session.type("exit\n")
            session.ended()
    assert "\ufffd" not in session.screen.text
    assert not session.screen.is_cursor_hidden
    _, *shown = session.screen.text.split("\n$ ")
    return [masked(line, text) for line, text in zip(lines, shown, strict=False)]


def masked(line: str, text: str) -> str:
    """Replace what differs between machines; of doctor's checks, leave only the names.

    A line that the screen's edge breaks is one line.
    """
    for pattern, mask in MASKS:
        text = pattern.sub(mask, text)
    typed_rows = math.ceil(len(f"$ {line}") / COLUMNS)
    output = text.splitlines()[typed_rows:]
    if "doctor" in line:
        titles, *checks = output
        names = [match[1] for check in checks if (match := CHECK.match(check))]
        output = [titles, *names, *checks[-2:]]
    return "\n".join([line, *output])


@cache
def transcript(*, without: tuple[str, ...] = ()) -> str:
    """Return the golden file with the sections of h2o-pack's commands made anew.

    without: beginnings of the commands whose sections stay as they are.
    """
    lines = [
        line
        for line in script()
        if line.startswith(COMMAND) and not line.removeprefix(COMMAND).startswith(without)
    ]
    made = dict(zip(lines, sections(lines, (sys.executable, "-c", ONE_PROCESS)), strict=True))
    committed = {text.partition("\n")[0]: text for text in split(GOLDEN.read_text("utf-8"))}
    return joined([made.get(line) or committed.get(line, line) for line in script()])


def split(text: str) -> list[str]:
    """Return the sections of a transcript."""
    return f"\n\n{text}".rstrip("\n").split("\n\n$ ")[1:]


def joined(shown: Sequence[str]) -> str:
    """Return a transcript of sections."""
    return "\n\n".join(f"$ {text}" for text in shown) + "\n"


def main() -> int:
    """Live the ten minutes; return 1 if the screen differs from the golden file."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--write", action="store_true", help="write the golden file instead")
    should_write = parser.parse_args().write
    seen = joined(sections(script(), BASH))
    print(seen)
    if should_write:
        GOLDEN.write_text(seen, "utf-8")
    committed = GOLDEN.read_text("utf-8")
    difference = difflib.unified_diff(
        committed.splitlines(), seen.splitlines(), "committed", "seen", lineterm=""
    )
    print("\n".join(difference))
    return int(seen != committed)


if __name__ == "__main__":
    sys.exit(main())
