"""A machine whose tools are small scripts in one folder."""

from __future__ import annotations

from pathlib import Path

from h2o_pack.doctor.machine import Surroundings
from tests.bridge.trees import program

HANGS = "exec /bin/sleep 600"
FLOODS = (
    "while :; do printf 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'; done"
)
GARBAGE = "printf '\\377\\000\\033[31mwhat\\n'"
BROKEN = "echo 'error: no way' >&2; exit 1"
XCODE = "/Applications/Xcode.app/Contents/Developer"
READY = "printf 'Xcode 26.4\\nBuild version 17B55\\n'"


class Machine:
    """Surroundings whose PATH is one folder of small scripts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "bin"
        self.folder.mkdir()
        self.home = folder / "home"
        self.home.mkdir()

    def has(self, **scripts: str) -> Machine:
        for name, script in scripts.items():
            program(self.folder, name.replace("xcode_", "xcode-"), script)
        return self

    def seen(self, platform="darwin", **changes) -> Surroundings:
        variables = {"PATH": str(self.folder), "HOME": str(self.home)}
        settings = {"processor": "arm64", "output": self.home, "tool_seconds": 20.0, **changes}
        return Surroundings(platform=platform, environment=variables, **settings)
