"""What checks look at: the platform, the environment, the tools on PATH."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from platform import machine as processor_here

from h2o_pack.doctor.finding import Finding, warning
from h2o_pack.doctor.tool import MOST_BYTES, ToolResult, run_tool
from h2o_pack.facts import requirements

VERSION = re.compile(r"\d+(?:\.\d+)+|\b\d+\b")


SHIMS = {"git", "swift", "clang++", "xcrun", "xcodebuild"}


@dataclass(frozen=True)
class Surroundings:
    """A machine as checks see it.

    platform: as of sys.platform; processor: as of platform.machine(). environment has
    PATH, HOME and the hub's variables. output: the folder that packages will be made in.
    tool_seconds and hub_seconds: how long a tool and the hub may take. shims: where macOS
    has stand-ins for developer tools; without the tools they open a window that asks to
    install them, so that they are then not run.
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
        """Whether Apple's tools can be there."""
        return self.platform == "darwin"

    @property
    def home(self) -> Path:
        """The user's folder."""
        return Path(self.environment.get("HOME") or Path.home())

    @cached_property
    def has_developer(self) -> bool:
        """Whether a developer folder is selected, which Apple's stand-ins in /usr/bin need."""
        selected = self.run("xcode-select", "-p") if self.is_mac else None
        return not self.is_mac or (selected is not None and selected.code == 0)

    def folder(self, text: str) -> Path:
        """Return a path of the environment, `~` being the user's folder."""
        return self.home / text[2:] if text.startswith("~/") else Path(text)

    def find(self, tool: str) -> str | None:
        """Return the path of a tool on PATH."""
        return shutil.which(tool, path=self.environment.get("PATH", os.defpath))

    def run(self, *command: str, most: int = MOST_BYTES) -> ToolResult | None:
        """Run a tool without input; None where it is missing. most: bytes that it may print."""
        found = self.find(command[0])
        if found is None:
            return None
        if command[0] in SHIMS and Path(found).parent == self.shims and not self.has_developer:
            return ToolResult(1, "error: no developer tools are installed")
        try:
            return run_tool([found, *command[1:]], self.environment, self.tool_seconds, most)
        except OSError as error:
            return ToolResult(-1, f"it cannot be run: {error.strerror or error}")


def version_in(text: str) -> tuple[int, ...] | None:
    """Return the first version number in a text, or None."""
    found = VERSION.search(text)
    return None if found is None else as_version(found[0])


def as_version(text: str) -> tuple[int, ...]:
    """Return "16.3" as (16, 3)."""
    return tuple(int(part[:9]) for part in text.split("."))


def shown(version: tuple[int, ...]) -> str:
    """Return (16, 3) as "16.3"."""
    return ".".join(map(str, version))


def older(found: tuple[int, ...], needed: str) -> bool:
    """Whether a version is older than another; "16" is not older than "16.0"."""
    least = as_version(needed)
    width = max(len(found), len(least))
    return found + (0,) * (width - len(found)) < least + (0,) * (width - len(least))


def needed(name: str) -> str:
    """Return the oldest version of a tool that serves, from facts/requirements.toml."""
    return requirements()[name].version


def not_understood(name: str, ran: ToolResult, remedy: str) -> Finding:
    """Return the finding for a tool that failed, hung or said something else."""
    return warning(name, f"its version could not be read: {ran.line}", remedy)
