"""Children that SIGINT ends, even where this process ignores it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


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
