"""A stranger's first ten minutes after `make install`, in a terminal of 80 columns.

`.ci/readme` types README's commands in a fresh clone, and compiles there; this is what a person
sees afterwards. What differs between machines is masked.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.pseudo_terminal import in_terminal

PHONE = '--device "iPhone 15 Pro"'
CALLS = (
    "doctor",
    f"plan --model Qwen3-4B-4bit {PHONE} --max-kv 512",
    f"ios --model demo {PHONE} --name 'My Chat' --max-kv 64",
    # Three mistakes.
    "ios --modle demo",
    'plan --model Qwen4-4B --device "iPhone 11"',
    "ios --model docs --max-kv 64",
)
TALK = "chat --model demo --max-kv 64 --no-history --temperature 0 --max-tokens 1"
TYPED = ("def main", "/help", "/quit")
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


@cache
def transcript() -> str:
    """Return what the stranger types and sees."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "docs").mkdir()
        (folder / "docs/notes.md").touch()
        texts = [seen(call, folder) for call in CALLS]
        texts.insert(1, seen(TALK, folder, TYPED))
    return "\n".join(texts)


def seen(call: str, folder: Path, typed: tuple[str, ...] = ()) -> str:
    """Run a call in the folder and type lines; return the screen, masked."""
    home = {"XDG_CONFIG_HOME": f"{folder}/config", "XDG_CACHE_HOME": f"{folder}/cache"}
    words = f'exec "{sys.executable}" -m h2o_pack {call}'
    with in_terminal("sh", "-c", words, cwd=folder, env={**OFFLINE, **home}) as session:
        for count, line in enumerate(typed, start=1):
            session.wait_for("\n> ", count)
            session.type(f"{line}\n")
        code = session.ended()
    text = session.screen.text.replace(f"{folder}{os.sep}", "")
    assert "\ufffd" not in text, text
    assert not session.screen.is_cursor_hidden
    if call == "doctor":
        text = checks(text)
    for pattern, mask in MASKS:
        text = pattern.sub(mask, text)
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    return f"$ h2o-pack {call}\n{lines}\n[{code}]\n"


def checks(text: str) -> str:
    """Leave only the names of doctor's checks, and its last line."""
    first, *lines = text.splitlines()
    names = [match[1] for line in lines if (match := CHECK.match(line))]
    return "\n".join([first, *names, lines[-1]])
