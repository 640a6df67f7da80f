"""A stranger's first ten minutes after `make install`, in a terminal of 80 columns.

`.ci/readme` types README's commands in a fresh clone, from `make install`, which compiles, to
`make demo`, and shows their output; this is what a person sees afterwards. What differs between
machines is masked.
"""

from __future__ import annotations

import re
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.pseudo_terminal import in_terminal

PHONE = '--device "iPhone 15 Pro"'
CALLS = (
    "doctor",
    "chat --model demo --max-kv 64 --temperature 0 --max-tokens 1",
    "models",
    f"plan {PHONE}",
    f"plan --model Qwen3-4B-4bit {PHONE}",
    "ios --model demo --name 'My Chat' --max-kv 64",
    # Three mistakes.
    "ios --modle demo",
    'plan --model Qwen4-4B --device "iPhone 11"',
    "ios --model docs --max-kv 64",
)
TYPED = ("def main", "/help", "/quit")
"""What is typed in the chat."""
OFFLINE = {
    "H2O_PACK_VENDOR": "0",
    "H2O_PACK_CHECK_TEXT": "0",
    "HF_HUB_OFFLINE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
MASKS = (
    (re.compile(r"(?<=org\.example\.My-Chat-)[0-9a-f]{8}"), "########"),
    (re.compile(r"\d[\d.,]*(?= tokens/s)"), "#"),
    (re.compile(r"^\d+ ok, .*", re.MULTILINE), "# ok ..."),
)
CHECK = re.compile(r"^(\S.*?)  +(?:ok|warning|problem|not applicable)\b")


PROGRAM = """
import shlex, sys
from h2o_pack.cli import main
for call in sys.argv[1:]:
    print("$ h2o-pack", call, flush=True)
    try:
        main(shlex.split(call), prog_name="h2o-pack")
    except SystemExit as end:
        print(f"[{end.code or 0}]", flush=True)
"""
"""Runs the calls in one process, which imports the libraries once."""


@cache
def transcript() -> str:
    """Return what the stranger types and sees, masked."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "docs").mkdir()
        (folder / "docs/notes.md").touch()
        home = {"XDG_CONFIG_HOME": f"{folder}/config", "H2O_PACK_CACHE": f"{folder}/cache"}
        program = (sys.executable, "-c", PROGRAM, *CALLS)
        with in_terminal(*program, cwd=folder, env={**OFFLINE, **home}) as session:
            for count, line in enumerate(TYPED, start=1):
                session.wait_for("\n> ", count)
                session.type(f"{line}\n")
            assert session.ended() == 0
    text = session.screen.text
    assert "\ufffd" not in text
    assert not session.screen.is_cursor_hidden
    for pattern, mask in MASKS:
        text = pattern.sub(mask, text)
    first, *others = text.split("\n$ ")
    return "\n\n$ ".join([checks(first), *others]) + "\n"


def checks(text: str) -> str:
    """Leave only the names of doctor's checks, and its last lines."""
    call, titles, *lines = text.splitlines()
    names = [match[1] for line in lines if (match := CHECK.match(line))]
    return "\n".join([call, titles, *names, *lines[-2:]])
