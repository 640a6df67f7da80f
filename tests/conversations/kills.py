"""A conversation that is saved after each turn, ended by kill -9 at random moments."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.conversations.program import KILLED, PREFIX, Program


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
    whole, interrupted = folder / "whole", folder / "interrupted"
    lines = program.run(KILLED, whole).count(PREFIX)
    expected, chance = messages(whole), random.Random(seed)  # noqa: S311
    kills: list[Kill] = []
    same = True
    while len(kills) < count:
        said = program.killed_after(chance.randint(1, lines // 2), interrupted)
        if (interrupted / "messages.json").exists():
            same = same and messages(interrupted) == expected
            shutil.rmtree(interrupted)
            continue
        (resumed,) = program.killed_after(1, interrupted)
        kills.append(Kill(said[-1], max(map(saved_turn, said)), saved_turn(resumed)))
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
