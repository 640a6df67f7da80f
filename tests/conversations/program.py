"""Runs the package's tests of conversations as programs, which may be killed."""

import json
import random
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from h2o_pack.parity.swift import Host, environment, prepare
from tests.processes import output_of

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
        lines_read: list[str] = []
        with self.start(KILLED, folder) as process:
            for line in process.stdout or ():
                if line.startswith(PREFIX):
                    lines_read.append(line.removeprefix(PREFIX).strip())
                    if len(lines_read) == lines:
                        process.kill()
        return lines_read


def build(package: Path, settings: Mapping[str, str]) -> Program:
    """Build a package's tests, on its Vendor/ folder or on the stand-in."""
    host = prepare(package)
    output_of("swift", "build", *host.options, "--build-tests", env=environment({}))
    return Program(package.resolve(), host, settings)


@dataclass(frozen=True)
class Kill:
    """A moment: the last line before it, and the turns saved and found afterwards."""

    after: str
    saved: int
    found: int

    @property
    def resumed_whole(self) -> bool:
        """Whether what was found is the last saved turn, or one whose saving went unsaid."""
        return self.saved <= self.found <= self.saved + 1


@dataclass(frozen=True)
class Kills:
    """All kills, and whether the conversation ended like one that nobody interrupted."""

    kills: tuple[Kill, ...]
    same: bool


def kill(program: Program, count: int, seed: int, folder: Path) -> Kills:
    """Kill a conversation `count` times; start another one where it came to its end."""
    original, interrupted = folder / "whole", folder / "interrupted"
    lines = program.run(KILLED, original).count(PREFIX)
    expected, chance = messages(original), random.Random(seed)  # noqa: S311
    kills: list[Kill] = []
    same = True
    while len(kills) < count:
        lines_printed = program.killed_after(chance.randint(1, lines // 2), interrupted)
        if (interrupted / "messages.json").exists():
            same = same and messages(interrupted) == expected
            shutil.rmtree(interrupted)
            continue
        (resumed,) = program.killed_after(1, interrupted)
        kills.append(
            Kill(lines_printed[-1], max(map(saved_turn, lines_printed)), saved_turn(resumed))
        )
    program.run(KILLED, interrupted)
    return Kills(tuple(kills), same and messages(interrupted) == expected)


def saved_turn(line: str) -> int:
    """Return the turn up to which the conversation is saved, as one of its lines says."""
    word, _, turn = line.partition(" ")
    return int(turn) if word in {"resumed", "saved"} else 0


def messages(folder: Path) -> list[str]:
    """Return the texts of a conversation that came to its end."""
    texts: list[str] = json.loads((folder / "messages.json").read_text("utf-8"))
    return texts
