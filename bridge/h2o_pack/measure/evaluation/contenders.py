"""The caches that are compared, by names such as "default", "paper_heavy/8", "peak+pinned".

    policy[/storage][+pinned][+recall[STEPS]]

policy is `full` (mlx-lm's KVCache), `rotating` (RotatingKVCache, 4 sinks) or one of
policies.toml; storage one of h2o_py's or of the two that keep heavy hitters at the higher
precision (r8h16, r4h8); with +pinned the instruction at the beginning is pinned; with
+recall evicted rows come back at prompts, with +recall4 also at every 4th generated token.
"""

from __future__ import annotations

import dataclasses
import re
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
from h2o_py.recall import H2ORecall

SINKS = 4
UNBOUNDED, ROTATING = "full", "rotating"
_NAME = re.compile(
    r"(?P<policy>[^/+]*)(/(?P<storage>[^/+]*))?(?P<pinned>\+pinned)?(\+recall(?P<steps>\d*))?"
)

REVERSED = {
    each.name: each
    for each in (Storage("r8h16", (16, 16), (8, 8)), Storage("r4h8", (8, 8), (4, 4)))
}
"""Storages that no user is offered: heavy hitters at the higher precision."""

ALL_STORAGES = {**STORAGES, **REVERSED}

FULL_STORAGES = {name: stored for name, stored in STORAGES.items() if stored.recent is None}
"""Of a cache that keeps all rows."""


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
    recall: generated tokens from one recall to the next, 0 at prompts only; None for none.
    """

    name: str
    policy: str
    storage: str = "dense"
    pinned: bool = False
    rows: int = 0
    recall: int | None = None

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
        stored = "" if self.storage == "dense" else f", {storage_title(self.storage)}"
        if self.policy == UNBOUNDED:
            return f"full cache{stored}"
        if self.policy == ROTATING:
            return "RotatingKVCache, 4 sinks"
        pinned = ", pinned" if self.pinned else ""
        return policies()[self.policy].title + stored + pinned + _recall_title(self.recall)

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
        if self.recall is not None:
            settings["recall"] = H2ORecall(every=self.recall)
        with warnings.catch_warnings():  # small windows are tried on purpose
            warnings.simplefilter("ignore", H2OConfigWarning)
            return POLICIES[policy.base](self.rows, sink_size=SINKS, **settings)


def find_contender(name: str) -> Contender:
    """Return the contender of a name, without rows.

    Raises:
        UserError: there is none; names the nearest.

    """
    known = (UNBOUNDED, ROTATING, *policies())
    parts = _NAME.fullmatch(name)
    policy = parts["policy"] if parts else name.partition("/")[0].partition("+")[0]
    if parts is None or policy not in known:
        raise _unknown(name, policy, known)
    storage = parts["storage"] or "dense"
    stored = FULL_STORAGES if policy == UNBOUNDED else ALL_STORAGES
    if storage not in stored:
        raise _unknown(name, storage, stored)
    plain = policy in (UNBOUNDED, ROTATING)
    fixed = plain or policies()[policy].control is not None
    pinned, steps = bool(parts["pinned"]), parts["steps"]
    as_it_comes = fixed and policy != UNBOUNDED and storage != "dense"
    if as_it_comes or (pinned and plain) or (fixed and steps is not None):
        raise usage_error(
            f'there is no contender "{name}": {policy} stores rows as they come, has '
            "nothing to pin and recalls nothing",
            f'Use "{policy}" alone.',
        )
    return Contender(
        name, policy, storage, pinned, recall=None if steps is None else int(steps or 0)
    )


def storage_title(name: str) -> str:
    """Return the name of a storage in tables."""
    stored = ALL_STORAGES[name]
    key, value = stored.heavy
    if stored.recent is not None:
        return f"recent {stored.recent[0]}, heavy {key}"
    rotated = "rotated, " if stored.rotated else ""
    return rotated + (f"{key}-bit" if key == value else f"keys {key}, values {value}")


def _recall_title(steps: int | None) -> str:
    if steps is None:
        return ""
    return f", recall every {steps}" if steps else ", recall"


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
