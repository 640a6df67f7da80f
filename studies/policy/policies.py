"""Policies to try: what a row's importance is, and how many newest rows are kept anyway."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from h2o_pack.measure.profiling.report import read_profile
from h2o_pack.measure.profiling.row_rule import allocate_rows, reaches
from studies.policy.model import Array
from studies.policy.recent import half
from studies.policy.rows import Rows

LAST = np.float32(1e9)
PROFILE = Path(__file__).parents[2] / "docs" / "results" / "profile" / "profile.json"


@dataclasses.dataclass(frozen=True)
class Policy:
    """One way to score rows, made of parts that can be switched one by one.

    Args:
        recent: newest rows that are kept, by the number of rows.
        score: what of the attention counts, as in `H2OConfig`; `sum` of all attention, or
            nothing but chance.
        decay: of the score.
        group: how the query heads of a KV head are brought together.
        novelty: weight of 1 - cos(key, mean of all keys).
        margin: novelty counts above the typical key's and this; None: all of it.
        mean_decay: of the sum of unit keys; 1 is the mean of all.
        carry: a token's novelty is at least this share of the one before it.
        fading: what novelty is multiplied by at each step.
        value_novelty: weight of the same novelty of values.
        pooled: neighbors on each side whose importance a row may take over.
        sinks: first positions, which are kept.
        seed: of chance.

    """

    recent: Callable[[int], int] = half
    score: Literal["peak", "softmax", "abs_logit", "sum", "chance"] = "peak"
    decay: float = 0.999
    group: Literal["mean", "max"] = "mean"
    novelty: float = 2.0
    margin: float | None = None
    mean_decay: float = 1.0
    carry: float = 0.0
    fading: float = 1.0
    value_novelty: float = 0.0
    pooled: int = 0
    sinks: int = 4
    seed: int = 0

    @property
    def features(self) -> dict[str, float]:
        """What is known of each row, and of a new one."""
        return {"score": -1.0, "novelty": 0.0, "extra": 0.0}

    def sizes(self, max_size: int, layers: int) -> tuple[int, ...]:
        """Rows of each layer."""
        return (max_size,) * layers

    def enter(self, rows: Rows, key: Array, value: Array, t: int) -> None:
        """Novelty of the new row, [B, Hkv]."""
        novelty = _novelty(rows, "keys", key, self.mean_decay)
        if self.margin is not None:
            novelty = np.maximum(novelty - 1 + _typical(rows.state["keys"], t) - self.margin, 0)
        if self.carry:
            novelty = np.maximum(novelty, self.carry * rows.state.get("novelty", 0))
            rows.state["novelty"] = novelty
        if self.value_novelty:
            rows.put("extra", self.value_novelty * _novelty(rows, "values", value, 1.0))
        rows.put("novelty", novelty)

    def observe(self, rows: Rows, weights: Array, logits: Array) -> None:
        """Scores after one query."""
        looked = np.abs(logits) if self.score == "abs_logit" else weights
        m = looked.max(axis=2) if self.group == "max" else looked.mean(axis=2)
        scores = rows.at("score")
        if self.score == "peak":
            updated = np.maximum(np.float32(self.decay) * scores, m)
        elif self.score == "sum":
            updated = scores + m
        else:
            updated = np.float32(self.decay) * scores + np.float32(1 - self.decay) * m
        scores[...] = np.where(scores < 0, m, updated)

    def importance(self, rows: Rows, t: int) -> Array:
        """[B, Hkv, N]; the least goes first."""
        if self.score == "chance":
            draw: Array = np.random.default_rng((self.seed, rows.layer, t)).random(
                rows.positions.shape, np.float32
            )
            return draw
        scores = np.maximum(rows.at("score"), 0)
        importance: Any = scores
        if self.novelty != 0:
            importance = scores / np.maximum(scores.max(axis=2, keepdims=True), 1e-30)
        novelty = rows.at("novelty")
        if self.fading != 1:
            novelty = novelty * np.float32(self.fading) ** (t - rows.positions)
        importance = importance + np.float32(self.novelty) * novelty + rows.at("extra")
        return self._pooled(rows, importance, t) if self.pooled else importance

    def _pooled(self, rows: Rows, importance: Array, t: int) -> Array:
        """The largest importance of a row and of its neighbors by position."""
        width = self.pooled
        shape = (*importance.shape[:2], t + 2 * width + 1)
        by_position = np.full(shape, -np.inf, np.float32)
        at = rows.positions.astype(np.int64) + width
        np.put_along_axis(by_position, at, importance, axis=2)
        for step in range(-width, width + 1):
            near = np.take_along_axis(by_position, at + step, axis=2)
            importance = np.maximum(importance, near)
        return importance


@dataclasses.dataclass(frozen=True)
class Superseded(Policy):
    """A row goes when a newer key came close to its own: one row for each distinct key."""

    distinct: float = 1.0
    """Weight of 1 - the largest cosine of any newer key with this row's."""

    def enter(self, rows: Rows, key: Array, value: Array, t: int) -> None:
        """The new key supersedes those that it is close to."""
        Policy.enter(self, rows, key, value, t)
        keys = rows.keys[:, :, : rows.length]
        cosine = (keys @ (key / np.linalg.norm(key, axis=-1, keepdims=True))[..., None])[..., 0]
        cosine = cosine / np.maximum(np.linalg.norm(keys, axis=-1), 1e-30)
        closest = rows.at("extra")
        closest[...] = np.minimum(closest, self.distinct * (1 - cosine))
        rows.put("extra", self.distinct * 2)


@dataclasses.dataclass(frozen=True)
class InHeads(Policy):
    """The policy in some heads (layer, KV head), a plain window in all others."""

    heads: tuple[tuple[int, int], ...] = ()
    inner: Callable[[int], int] = half

    def importance(self, rows: Rows, t: int) -> Array:
        """Positions where the head has a window."""
        importance = Policy.importance(self, rows, t)
        newest = rows.positions >= t + 1 - self.inner(rows.max_size)
        importance = np.where(newest, LAST, importance)
        for head in range(importance.shape[1]):
            if (rows.layer, head) not in self.heads:
                importance[:, head] = rows.positions[:, head]
        return importance


@dataclasses.dataclass(frozen=True)
class ByLayer(Policy):
    """The policy with rows by the layers' reach, as the committed profile has it."""

    def sizes(self, max_size: int, layers: int) -> tuple[int, ...]:
        """Rows of each layer, `max_size` on average."""
        rows = allocate_rows(reaches(read_profile(PROFILE)), max_size)
        return tuple(rows[layer] for layer in range(layers))


def _novelty(rows: Rows, name: str, vector: Array, decay: float) -> Array:
    norm = np.sqrt(np.square(vector).sum(axis=-1, keepdims=True))
    unit = vector / np.maximum(norm, 1e-30)
    total = rows.state[name] = rows.state.get(name, 0) * np.float32(decay) + unit
    length = np.sqrt(np.square(total).sum(axis=-1))
    out: Array = 1 - (unit * total).sum(axis=-1) / length
    return out


def _typical(total: Array, t: int) -> Array:
    """The cosine that a typical one of t + 1 unit vectors of this sum has with their mean."""
    count = t + 1
    beyond = np.maximum(np.square(total).sum(axis=-1) - count, 0)
    out: Array = np.sqrt(beyond / max(1, count * (count - 1)))
    return out
