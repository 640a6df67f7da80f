"""Runs the package's tests of conversations as programs, which may be killed."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from h2o_pack.parity.swift import Host, environment, prepare

LONG = "H2OSessionsTests.LongConversationTests/testEachTurnReadsWhatIsNewAndAChangeWhatFollows"
KILLED = "H2OSessionsTests.KilledConversationTests/testItGoesOnFromItsLastWholeTurn"
PREFIX = "conversation: "


@dataclass(frozen=True)
class Program:
    """The built tests of a package, and the settings of every run."""

    package: Path
    host: Host
    settings: Mapping[str, str]

    def start(self, test: str, folder: Path) -> subprocess.Popen[str]:
        """Start one test, which works in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        (tests,) = (self.host.scratch / "debug").glob("*PackageTests.xctest")
        return subprocess.Popen(
            [tests, test],
            env=environment(
                {
                    "H2O_MODEL_DIR": str(self.package / "Model"),
                    "H2O_CONVERSATION": str(folder),
                    **self.settings,
                }
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, test: str, folder: Path) -> str:
        """Run one test to its end; RuntimeError with its words if it fails."""
        process = self.start(test, folder)
        output, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{test} failed:\n{output[-3000:]}")
        return output

    def killed_after(self, lines: int, folder: Path) -> list[str]:
        """Kill the conversation after so many of its lines; return all that it said."""
        said: list[str] = []
        with self.start(KILLED, folder) as process:
            for line in process.stdout or ():
                if line.startswith(PREFIX):
                    said.append(line.removeprefix(PREFIX).strip())
                    if len(said) == lines:
                        process.kill()
        return said


def build(package: Path, settings: Mapping[str, str]) -> Program:
    """Build a package's tests, on its Vendor/ folder or on the stand-in."""
    host = prepare(package)
    command = ["swift", "build", *host.options, "--build-tests"]
    subprocess.run(command, env=environment({}), check=True, capture_output=True)
    return Program(package.resolve(), host, settings)
