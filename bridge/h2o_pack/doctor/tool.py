"""Runs a tool that may hang, print without end or not be a program at all."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

SHOWN = 160
MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class ToolResult:
    """What a tool did. code: None where it did not end in time; said: what it printed."""

    code: int | None
    said: str

    @property
    def line(self) -> str:
        """The line that tells most: with "error" in it, or else the first one."""
        lines = [line.strip() for line in self.said.splitlines() if line.strip()]
        telling = [line for line in lines if "error" in line.lower()] or lines
        shown = telling[0] if telling else "it said nothing"
        return "".join(x if x.isprintable() else "?" for x in shown)[:SHOWN]


def run_tool(
    command: Sequence[str],
    environment: Mapping[str, str],
    seconds: float,
    most: int = MOST_BYTES,
) -> ToolResult:
    """Run a tool without input, and end it with all it started when its time is over.

    Raises:
        OSError: it cannot be started.

    """
    deadline = time.monotonic() + seconds
    with subprocess.Popen(  # noqa: S603
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(environment),
        start_new_session=True,
    ) as process:
        try:
            said, ended = read(process, deadline, most)
            if not ended:
                return ToolResult(None, f"it did not end within {seconds:g} s")
            if len(said) > most:
                return ToolResult(-1, "it printed too much")
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return ToolResult(None, f"it did not end within {seconds:g} s")
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    return ToolResult(code, said.decode("utf-8", "replace"))


def read(process: subprocess.Popen[bytes], deadline: float, most: int) -> tuple[bytes, bool]:
    """Return what a tool prints, up to a little too much, and whether it was in time."""
    said = b""
    if process.stdout is None:
        return said, True
    while len(said) <= most:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            return said, False
        chunk = os.read(process.stdout.fileno(), MOST_BYTES)
        if not chunk:
            break
        said += chunk
    return said, True
