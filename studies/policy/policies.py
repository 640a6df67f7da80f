"""Policies to try: what a row's importance is, and how many newest rows are kept anyway."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from studies.policy.model import Array
from studies.policy.rows import Rows


def half(max_size: int) -> int:
    """The published split: half for heavy hitters, what is left for recent tokens."""
    return max_size - 4 - max_size // 2


@dataclasses.dataclass(frozen=True)
class share:
    """A part of the rows for recent tokens."""

    part: float

    def __call__(self, max_size: int) -> int:
        return int(max_size * self.part)


@dataclasses.dataclass(frozen=True)
class fixed:
    """The same number of recent tokens whatever the budget, half of it at most."""

    rows: int

    def __call__(self, max_size: int) -> int:
        return min(self.rows, half(max_size))


def everything(max_size: int) -> int:
    """All rows for recent tokens: sinks and a window."""
    return max_size - 4 - 1


@dataclasses.dataclass(frozen=True)
class Policy:
    """One way to score rows, made of parts that can be switched one by one."""

    recent: Callable[[int], int] = half
    score: str = "peak"
    decay: float = 0.999
    novelty: float = 2.0
    mean_decay: float = 1.0
    """Of the sum of unit keys that novelty compares with; 1 is the mean of all."""
    carry: float = 0.0
    """A token's novelty is at least this share of the one before it."""
    back: float = 0.0
    """A token's novelty is at least this share of the one after it."""
    value_novelty: float = 0.0
    value_norm: float = 0.0
    saturate: float = 0.0
    """Novelty above this counts as this; 0 for no bound."""
    centred: float = 0.0
    group: str = "mean"
    norm: str = "max"
    """What scores are divided by: the largest, the mean, or their rank."""
    rank_novelty: bool = False
    pool: int = 0
    """Neighbours on each side whose importance a row may take over."""
    pool_share: float = 1.0
    power: float = 1.0
    recency: float = 0.0
    """Weight of exp(-age / recency_rows * max_size)"""
    recency_span: float = 0.5
    novelty_decay: float = 1.0
    score_carry: float = 0.0
    sinks: int = 4
    seed: int = 0

    @property
    def features(self) -> dict[str, float]:
        return {"score": -1.0, "novelty": 0.0, "extra": 0.0}

    def enter(self, rows: Rows, key: Array, value: Array, t: int) -> None:
        """Novelty of the new row."""
        novelty = _novelty(rows, "keys", key, self.mean_decay)
        if self.value_novelty:
            rows.put("extra", self.value_novelty * _novelty(rows, "values", value, 1.0))
        if self.value_norm:
            size = np.linalg.norm(value, axis=-1)
            mean = rows.state.setdefault("value_norm", np.zeros_like(size))
            mean += (size - mean) / (t + 1)
            rows.put("extra", self.value_norm * size / mean)
        own = novelty
        if self.carry and "own" in rows.state:
            novelty = np.maximum(novelty, self.carry * rows.state["own"])
        if self.back and t > 0:
            before = rows.get("novelty", rows.previous)
            stands = rows.get("novelty", rows.previous)
            where = (*rows._at, rows.previous)  # noqa: SLF001
            same = rows.positions[where] == t - 1
            rows.features["novelty"][where] = np.where(
                same, np.maximum(before, self.back * own), stands
            )
        rows.state["own"] = novelty
        rows.put("novelty", novelty)

    def observe(self, rows: Rows, weights: Array, logits: Array, t: int) -> None:
        """Scores after one query."""
        looked = np.abs(logits) if self.score == "abs_logit" else weights
        m = looked.max(axis=2) if self.group == "max" else looked.mean(axis=2)
        scores = rows.at("score")
        if self.score == "peak":
            updated = np.maximum(np.float32(self.decay) * scores, m)
        elif self.score == "sum":
            updated = np.maximum(scores, 0) + m
        else:
            updated = np.float32(self.decay) * scores + np.float32(1 - self.decay) * m
        scores[...] = np.where(scores < 0, m, updated)

    def importance(self, rows: Rows, t: int) -> Array:
        """[B, Hkv, N]; the least goes first."""
        if self.score == "random":
            draw: Array = np.random.default_rng(self.seed + t).random(
                rows.positions.shape, np.float32
            )
            return draw
        scores = np.maximum(rows.at("score"), 0)
        if self.norm == "max":
            part = scores / np.maximum(scores.max(axis=2, keepdims=True), 1e-30)
        elif self.norm == "mean":
            part = np.minimum(scores / scores.mean(axis=2, keepdims=True) / 8, 1)
        elif self.norm == "rank":
            part = _ranks(scores)
        else:
            part = scores
        if self.power != 1:
            part = part**self.power
        novelty = rows.at("novelty")
        if self.saturate:
            novelty = np.minimum(novelty, self.saturate)
        if self.rank_novelty:
            novelty = _ranks(novelty)
        if self.novelty_decay != 1:
            novelty = novelty * np.float32(self.novelty_decay) ** (t - rows.positions)
        importance = part + np.float32(self.novelty) * novelty + rows.at("extra")
        if self.recency:
            age = (t - rows.positions) / np.float32(self.recency_span * rows.max_size)
            importance = importance + np.float32(self.recency) * np.exp(-age)
        if self.pool:
            importance = self._pooled(rows, importance, t)
        return importance

    def _pooled(self, rows: Rows, importance: Array, t: int) -> Array:
        batch, heads, count = importance.shape
        by_position = np.full((batch, heads, t + 2 * self.pool + 1), -np.inf, np.float32)
        at = rows.positions[:, :, :count].astype(np.int64) + self.pool
        np.put_along_axis(by_position, at, importance, axis=2)
        best = importance
        for step in range(1, self.pool + 1):
            for side in (-step, step):
                near = np.take_along_axis(by_position, at + side, axis=2)
                best = np.maximum(best, np.float32(self.pool_share) * near)
        return best


def _ranks(values: Array) -> Array:
    order = values.argsort(axis=2).argsort(axis=2)
    return (order / np.float32(values.shape[2])).astype(np.float32)


def _novelty(rows: Rows, name: str, vector: Array, decay: float) -> Array:
    norm = np.sqrt(np.square(vector).sum(axis=-1, keepdims=True))
    unit = vector / np.maximum(norm, 1e-30)
    total = rows.state.get(name, 0)
    total = total * np.float32(decay) + unit if decay != 1 else total + unit
    rows.state[name] = total
    out: Any = 1 - (unit * total).sum(axis=-1) / np.sqrt(np.square(total).sum(axis=-1))
    return out
