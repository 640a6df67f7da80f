"""What the program says, each text once: tests/golden/messages.txt, below the test's name.

A test calls `says` with an error or a text, such as `refused` returns. `make messages` writes
what tests say now; look at the diff afterwards.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from h2o_pack.errors import ExitCode, UserError

FILE = Path(__file__).parent / "golden/messages.txt"
ROOT = Path(__file__).parents[1]
WRITE = "H2O_PACK_WRITE_MESSAGES"
"""The variable that makes `says` write; tests must then run in one process."""
TEMPORARY = re.compile(r"/[^\s'\"]*/pytest-\d+/(?:popen-gw\d+/)?[\w.-]+")
PORT = re.compile(r"(?<=//127\.0\.0\.1:)\d+")
written: defaultdict[str, list[str]] = defaultdict(list)


def refused(
    work: Callable[..., object], *arguments: Any, code: ExitCode, **options: Any
) -> str:
    """Call something that ends with a UserError of this code; return its message."""
    with pytest.raises(UserError) as error:
        work(*arguments, **options)
    assert error.value.code == code
    return str(error.value)


def says(message: object) -> None:
    """Check that a text, or an error with its exit code, is one of those of this test."""
    code = f"[{int(message.code)}] " if isinstance(message, UserError) else ""
    text = TEMPORARY.sub("TEMPORARY", f"{code}{message}").replace(str(ROOT), "CHECKOUT").strip()
    text = PORT.sub("PORT", text)
    node = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    test = node.partition("[")[0].rpartition("::")[2]
    if os.environ.get(WRITE):
        written[test] += [] if text in written[test] else [text]
        FILE.write_text(as_file(committed() | written), encoding="utf-8")
        return
    assert text in committed().get(test, []), f"{text}\n\nNot in {FILE.name}: `make messages`?"


@cache
def committed() -> dict[str, list[str]]:
    """Return {test: texts}; a text's first line begins with a dash."""
    texts: dict[str, list[str]] = {}
    test = ""
    for line in FILE.read_text("utf-8").splitlines():
        if line.startswith("- "):
            texts[test].append(line[2:])
        elif line.startswith("  "):
            texts[test][-1] += f"\n{line[2:]}"
        elif line:
            test = line
            texts[test] = []
    return texts


def as_file(texts: dict[str, Iterable[str]]) -> str:
    """Write {test: texts} as `committed` reads it."""
    sections = []
    for test, lines in sorted(texts.items()):
        items = ("- " + "\n  ".join(text.splitlines()) for text in sorted(lines))
        sections.append("\n".join([test, *items]))
    return "\n".join(sections) + "\n"
