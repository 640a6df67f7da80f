"""The caches that are compared, by names such as "default", "paper_heavy/8", "peak+pinned".

    policy[/storage][+pinned]

policy is `full` (mlx-lm's KVCache), `rotating` (RotatingKVCache, 4 sinks) or one of
policies.toml; storage one of h2o_py's or of the two that keep heavy hitters at the higher
precision (r8h16, r4h8); with +pinned the instruction at the beginning is pinned.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from msgspec import Struct, toml

from h2o_pack.errors import UserError, nearest
from h2o_pack.files.text import usage_error
from h2o_pack.memory.storages import STORAGES, Storage
from h2o_py.config import POLICIES, H2OConfig
from h2o_py.errors import H2OConfigWarning

SINKS = 4
UNBOUNDED, ROTATING = "full", "rotating"
_PINNED = "+pinned"

REVERSED = {
    each.name: each
    for each in (Storage("r8h16", (16, 16), (8, 8)), Storage("r4h8", (8, 8), (4, 4)))
}
"""Storages that no user is offered: heavy hitters at the higher precision."""

ALL_STORAGES = {**STORAGES, **REVERSED}


class Policy(Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of policies.toml, which says what each field means."""

    title: str
    settings: dict[str, Any] = {}
    heavy: float | None = None
    base: str = "standard"
    by_layer: Literal["concentration", "reach"] | None = None
    control: Literal["oldest", "random", "sabotaged"] | None = None
    unprotected: bool = False


@dataclass(frozen=True)
class Contender:
    """One way to keep rows; `name` is what it was asked for by.

    rows: that each KV head keeps, on average over the layers; 0 for all that come.
    """

    name: str
    policy: str
    storage: str = "dense"
    pinned: bool = False
    rows: int = 0

    def with_rows(self, rows: int) -> Contender:
        """Return the contender with so many rows."""
        return dataclasses.replace(self, rows=rows)

    @property
    def bounded(self) -> bool:
        """Whether its rows are limited."""
        return self.policy != UNBOUNDED

    @property
    def title(self) -> str:
        """Its name in tables."""
        if self.policy == UNBOUNDED:
            return "full cache"
        if self.policy == ROTATING:
            return "RotatingKVCache, 4 sinks"
        stored = "" if self.storage == "dense" else f", {storage_title(self.storage)}"
        return policies()[self.policy].title + stored + (", pinned" if self.pinned else "")

    def config(self, pinned: tuple[tuple[int, int], ...] = ()) -> H2OConfig:
        """Return the policy's configuration at its rows.

        Raises:
            H2OError: h2o_py refuses so few rows.

        """
        policy = policies()[self.policy]
        settings = dict(policy.settings)
        if policy.heavy is not None:
            settings["heavy_budget"] = int(self.rows * policy.heavy)
        if policy.unprotected:
            settings |= {"heavy_budget": 0, "recent_budget": 1}
        if self.pinned:
            settings["pinned"] = pinned
        with warnings.catch_warnings():  # small windows are tried on purpose
            warnings.simplefilter("ignore", H2OConfigWarning)
            return POLICIES[policy.base](self.rows, sink_size=SINKS, **settings)


def find_contender(name: str) -> Contender:
    """Return the contender of a name, without rows.

    Raises:
        UserError: there is none; names the nearest.

    """
    rest, pinned, after = name.partition(_PINNED)
    policy, _, storage = rest.partition("/")
    known = (UNBOUNDED, ROTATING, *policies())
    if policy not in known or after:
        raise _unknown(name, policy, known)
    storage = storage or "dense"
    if storage not in ALL_STORAGES:
        raise _unknown(name, storage, ALL_STORAGES)
    plain = policy in (UNBOUNDED, ROTATING)
    fixed = plain or policies()[policy].control is not None
    if fixed and (storage != "dense" or (pinned and plain)):
        raise usage_error(
            f'there is no contender "{name}": {policy} stores rows as they come and has '
            "nothing to pin",
            f'Use "{policy}" alone.',
        )
    return Contender(name, policy, storage, bool(pinned))


def storage_title(name: str) -> str:
    """Return the name of a storage in tables."""
    stored = ALL_STORAGES[name]
    key, value = stored.heavy
    if stored.recent is not None:
        return f"recent {stored.recent[0]}, heavy {key}"
    return f"{key}-bit" if key == value else f"keys {key}, values {value}"


@cache
def policies() -> dict[str, Policy]:
    """Return all of policies.toml."""
    text = (resources.files(__package__) / "policies.toml").read_text("utf-8")
    return toml.decode(text, type=dict[str, Policy])


def _unknown(name: str, part: str, known: Iterable[str]) -> UserError:
    near = nearest(part, known)
    return usage_error(
        f'there is no contender "{name}"', f"{near}Choose from: {', '.join(known)}."
    )
