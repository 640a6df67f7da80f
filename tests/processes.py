"""Programs that tests run."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def ran(
    *command: object, cwd: Path = ROOT, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, by default in the checkout; its output is text.

    options: further ones of `subprocess.run`.
    """
    words = [str(word) for word in command]
    return subprocess.run(
        words, cwd=cwd, capture_output=True, text=True, check=check, **options
    )


def python(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run this Python; see `ran`."""
    return ran(sys.executable, *arguments, **options)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let processes started in this block take SIGINT as they do in a terminal.

    A child inherits that a signal is ignored, and a shell's background jobs ignore SIGINT.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def in_time(seconds: int = 60) -> Iterator[None]:
    """Interrupt what would wait for ever, such as reading a pipe that nobody writes."""

    def interrupt(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
