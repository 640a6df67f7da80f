"""The caches that are compared, by names such as "default", "paper_heavy/8", "peak+pinned".

    policy[/storage][+pinned]

policy is `full` (mlx-lm's KVCache), `rotating` (RotatingKVCache, 4 sinks) or one of
policies.toml; storage one of h2o_py's (dense, 8, k8v4, 4, r16h8, r16h4, r8h4) or of the two
that keep heavy hitters at the higher precision (r8h16, r4h8); with +pinned the instruction
at the beginning is pinned.
"""

from __future__ import annotations

import difflib
import warnings
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from h2o_pack.measure.evaluation.toml import loads
from h2o_py.config import POLICIES, H2OConfig
from h2o_py.errors import H2OConfigWarning

SINKS = 4
UNBOUNDED, ROTATING = "full", "rotating"
_PINNED = "+pinned"

STORAGES = {
    "dense": "16-bit",
    "8": "8-bit",
    "k8v4": "keys 8, values 4",
    "4": "4-bit",
    "r16h8": "recent 16, heavy 8",
    "r16h4": "recent 16, heavy 4",
    "r8h4": "recent 8, heavy 4",
    "r8h16": "recent 8, heavy 16",
    "r4h8": "recent 4, heavy 8",
}
"""Titles of how rows are stored."""


@dataclass(frozen=True)
class Policy:
    """An entry of policies.toml."""

    title: str
    settings: tuple[tuple[str, Any], ...] = ()
    heavy: float | None = None
    base: str = "standard"
    by_layer: Literal["concentration", "reach"] | None = None
    control: str | None = None
    unprotected: bool = False


@dataclass(frozen=True)
class Contender:
    """One way to keep rows; `name` is what it was asked for by."""

    name: str
    policy: str
    storage: str = "dense"
    pinned: bool = False

    @property
    def bounded(self) -> bool:
        """Whether it has a budget."""
        return self.policy != UNBOUNDED

    @property
    def is_h2o(self) -> bool:
        """Whether it is a cache of h2o_py, with a ledger."""
        return self.policy not in (UNBOUNDED, ROTATING)

    @property
    def title(self) -> str:
        """For people."""
        if self.policy == UNBOUNDED:
            return "full cache"
        if self.policy == ROTATING:
            return "RotatingKVCache, 4 sinks"
        stored = "" if self.storage == "dense" else f", {STORAGES[self.storage]}"
        return policies()[self.policy].title + stored + (", pinned" if self.pinned else "")

    def config(self, rows: int, pinned: tuple[tuple[int, int], ...] = ()) -> H2OConfig:
        """The policy at so many rows.

        Raises:
            ValueError: so few rows cannot serve it.

        """
        policy = policies()[self.policy]
        settings = dict(policy.settings)
        if policy.heavy is not None:
            settings["heavy_budget"] = int(rows * policy.heavy)
        if policy.unprotected:
            settings |= {"heavy_budget": 0, "recent_budget": 1}
        if self.pinned:
            settings["pinned"] = pinned
        make = POLICIES[policy.base]
        with warnings.catch_warnings():  # small windows are tried on purpose
            warnings.simplefilter("ignore", H2OConfigWarning)
            return make(rows, sink_size=SINKS, **settings)


def contender(name: str) -> Contender:
    """The contender of a name.

    Raises:
        ValueError: there is none; names the nearest.

    """
    rest, pinned, after = name.partition(_PINNED)
    policy, _, storage = rest.partition("/")
    known = (UNBOUNDED, ROTATING, *policies())
    if policy not in known or after:
        raise ValueError(f"contender = {name!r} is unknown. {_near(policy, known)}")
    storage = storage or "dense"
    if storage not in STORAGES:
        raise ValueError(f"contender = {name!r} is unknown. {_near(storage, STORAGES)}")
    made = Contender(name, policy, storage, bool(pinned))
    plain = policy in (UNBOUNDED, ROTATING) or policies()[policy].control is not None
    if plain and (storage != "dense" or (pinned and policy in (UNBOUNDED, ROTATING))):
        raise ValueError(
            f"contender = {name!r} does not exist. {policy} is stored as it comes and has "
            "nothing to pin."
        )
    return made


@cache
def policies() -> dict[str, Policy]:
    """All of policies.toml."""
    text = (resources.files(__package__) / "policies.toml").read_text("utf-8")
    found = {}
    for name, entry in loads(text).items():
        settings = tuple(entry.pop("settings", {}).items())
        found[name] = Policy(settings=settings, **entry)
    return found


def _near(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return (f"Did you mean {close[0]!r}? " if close else "") + f"Known: {', '.join(known)}."
