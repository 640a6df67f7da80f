"""Programs that tests run."""

from __future__ import annotations

import resource
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


def output_of(*command: object, **options: Any) -> str:
    """Run a program that must succeed, and return its output; see `ran`."""
    process = ran(*command, **options)
    assert process.returncode == 0, (process.stdout + process.stderr)[-3000:]
    return process.stdout


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
def full_disk() -> Iterator[None]:
    """Let no file grow beyond 4096 bytes in this block, as if the disk were full."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


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
