"""The machine that doctor checks: its platform, its environment and the tools on PATH."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from platform import machine as processor_here

from h2o_pack.doctor.finding import Finding, warning
from h2o_pack.facts import requirements

SHOWN = 160
MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class ToolResult:
    """The result of running a tool; code: its exit status, None if it did not end in time."""

    code: int | None
    output: str

    @property
    def line(self) -> str:
        """The most informative line: the first with "error" in it, or else the first."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        best_lines = [line for line in lines if "error" in line.lower()] or lines
        best = best_lines[0] if best_lines else "printed nothing"
        return "".join(x if x.isprintable() else "?" for x in best)[:SHOWN]

    def version(self, label: str = "") -> tuple[int, ...] | None:
        """Return the first version printed after `label`; None if the tool failed."""
        match = re.search(rf"{label}(\d+(?:\.\d+)+|\b\d+\b)", self.output)
        return as_version(match[1]) if match and self.code == 0 else None


def run_tool(
    command: Sequence[str], environment: Mapping[str, str], seconds: float
) -> ToolResult:
    """Run a tool without input; after the time limit, end it and all processes it started."""
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
            printed = read(process, deadline)
            if len(printed) > MOST_BYTES:
                return ToolResult(-1, "printed too much")
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return ToolResult(None, f"did not end within {seconds:g} s")
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    return ToolResult(code, printed.decode("utf-8", "replace"))


def read(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """Return a tool's output, cut soon after MOST_BYTES; TimeoutExpired at the deadline."""
    assert process.stdout is not None  # noqa: S101
    output = b""
    while len(output) <= MOST_BYTES:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not select.select([process.stdout], [], [], remaining)[0]:
            raise subprocess.TimeoutExpired(process.args, remaining)
        chunk = os.read(process.stdout.fileno(), MOST_BYTES)
        if not chunk:
            break
        output += chunk
    return output


SHIMS = {"git", "swift", "xcrun", "xcodebuild"}


@dataclass(frozen=True)
class Surroundings:
    """The machine that doctor checks; tests replace its fields.

    platform: like sys.platform. processor: like platform.machine(). environment has PATH
    and HOME. output: the folder for packages. tool_seconds and hub_seconds: the
    time limits of a tool and of the hub. shims: the folder of macOS's stand-ins for developer
    tools. If the tools are missing, a stand-in opens a window that offers to install them, so
    it is then not run.
    """

    platform: str = sys.platform
    processor: str = field(default_factory=processor_here)
    python: tuple[int, int, int] = sys.version_info[:3]
    executable: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    output: Path = field(default_factory=Path.cwd)
    tool_seconds: float = 20.0
    hub_seconds: float = 5.0
    shims: Path = Path("/usr/bin")

    @property
    def is_mac(self) -> bool:
        """Whether this is a Mac, which may have Apple's tools."""
        return self.platform == "darwin"

    @cached_property
    def has_developer(self) -> bool:
        """Whether a developer folder is selected, which Apple's stand-ins in /usr/bin need."""
        selected = self.run("xcode-select", "-p") if self.is_mac else None
        return not self.is_mac or (selected is not None and selected.code == 0)

    def find(self, tool: str) -> str | None:
        """Return the path of a tool on PATH."""
        return shutil.which(tool, path=self.environment.get("PATH", os.defpath))

    def run(self, *command: str) -> ToolResult | None:
        """Run a tool without input; None if it is missing."""
        path = self.find(command[0])
        if path is None:
            return None
        if command[0] in SHIMS and Path(path).parent == self.shims and not self.has_developer:
            return ToolResult(1, "error: no developer tools are installed")
        try:
            return run_tool([path, *command[1:]], self.environment, self.tool_seconds)
        except OSError as error:
            return ToolResult(-1, f"cannot be run: {error.strerror or error}")


def as_version(text: str) -> tuple[int, ...]:
    """Return "16.3" as (16, 3)."""
    return tuple(int(part[:9]) for part in text.split("."))


def shown(version: tuple[int, ...]) -> str:
    """Return (16, 3) as "16.3"."""
    return ".".join(map(str, version))


def needed(tool: str) -> str:
    """Return the oldest supported version of a tool, from facts/requirements.toml."""
    return requirements()[tool].version


def too_old(version: tuple[int, ...], tool: str) -> str:
    """Say that a version is older than the tool's oldest supported one; "" if it is not."""
    least = as_version(needed(tool))
    missing_zeros = (0,) * (len(least) - len(version))  # 16 is not older than 16.0
    old = version + missing_zeros < least
    return f"{shown(version)} is older than {needed(tool)}" if old else ""


def not_understood(result: ToolResult, remedy: str) -> Finding:
    """Return the finding for a tool that failed, hung or printed something unexpected."""
    return warning(f"the version is unknown: {result.line}", remedy)
