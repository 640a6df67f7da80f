"""What the paper published, by model and cache."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from h2o_pack import facts
from h2o_pack.files.toml import read_tables

BASELINE = "kv"
"""The cache that others are compared with."""


@dataclass(frozen=True)
class PaperSetting:
    """What was run. max_kv: rows of a layer; tokens: generated."""

    max_kv: int
    tokens: int
    machine: str


@dataclass(frozen=True)
class PaperSpeed:
    """Tokens per second of decoding; cache: a name in h2o_pack.measure.bench.caches."""

    model: str
    cache: str
    tokens_per_second: float
    source: str
    measured: bool


@dataclass(frozen=True)
class PaperFile:
    """facts/paper.toml."""

    setting: tuple[PaperSetting]
    speed: tuple[PaperSpeed, ...]


@cache
def published() -> PaperFile:
    """Read the file."""
    return read_tables(facts.FOLDER / "paper.toml", PaperFile)


def speeds() -> tuple[PaperSpeed, ...]:
    """Return all speeds that it published."""
    return published().speed


def speeds_of(model: str) -> dict[str, PaperSpeed]:
    """Return what it published of a model, by cache."""
    return {each.cache: each for each in speeds() if each.model == model}


def ratio(model: str, name: str) -> float | None:
    """Return how many times the baseline's speed a cache had; None where nobody says."""
    known = speeds_of(model)
    if name == BASELINE or not {name, BASELINE} <= known.keys():
        return None
    return known[name].tokens_per_second / known[BASELINE].tokens_per_second
