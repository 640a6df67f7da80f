"""One layer's rows: what is kept, what is known of each row, and who goes next."""

from __future__ import annotations

from typing import Any

import numpy as np

from studies.policy.model import Array


class Rows:
    """Keys and values [B, Hkv, C, D], their positions and the features a policy keeps.

    A policy has `features` (names of its arrays [B, Hkv, C] and the value of a new row),
    `enter`, `observe` and `importance`, all of which get this object.
    """

    def __init__(
        self,
        batch: int,
        kv_heads: int,
        dim: int,
        max_size: int,
        policy: Any,
        layer: int,
    ) -> None:
        self.layer = layer
        shape = (batch, kv_heads, max_size)
        self.max_size = max_size
        self.keys = np.zeros((*shape, dim), np.float32)
        self.values = np.zeros((*shape, dim), np.float32)
        self.positions = np.full(shape, -1, np.int32)
        self.features = {
            name: np.full(shape, value, np.float32) for name, value in policy.features.items()
        }
        self.state: dict[str, Any] = {}
        self.length = 0
        self.policy = policy
        self.newest = np.zeros((batch, kv_heads), np.int64)
        self._at = np.ogrid[:batch, :kv_heads]

    def at(self, name: str) -> Array:
        """A feature of the rows in use [B, Hkv, N]; writing to it writes the feature."""
        return self.features[name][:, :, : self.length]

    def put(self, name: str, value: Array | float) -> None:
        """Set a feature of the newest row."""
        self.features[name][self._newest_rows()] = value

    def _newest_rows(self) -> tuple[Any, ...]:
        return (*self._at, self.newest)

    def step(self, queries: Array, key: Array, value: Array, t: int) -> Array:
        """Attention [B, Hkv, G, D] of one token over the rows, itself included."""
        full = self.length == self.keys.shape[2]
        if full:
            self.newest = self._victim(t)
        else:
            self.newest = np.full_like(self.newest, self.length)
            self.length += 1
        where = self._newest_rows()
        self.keys[where] = key
        self.values[where] = value
        self.positions[where] = t
        for name, initial in self.policy.features.items():
            self.features[name][where] = initial
        self.policy.enter(self, key, value, t)
        keys = self.keys[:, :, : self.length]
        logits = queries @ keys.swapaxes(2, 3)
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        out: Array = weights @ self.values[:, :, : self.length]
        self.policy.observe(self, weights, logits)
        return out

    def _victim(self, t: int) -> Any:
        """The row that token t takes, [B, Hkv]: least important, ties to the oldest."""
        importance = self.policy.importance(self, t)
        recent_from = t + 1 - self.policy.recent(self.max_size)
        positions = self.positions
        protected = (positions < self.policy.sinks) | (positions >= recent_from)
        importance = np.where(protected, np.float32(np.inf), importance)
        least = importance.min(axis=2, keepdims=True)
        age = np.where(importance == least, positions, np.iinfo(np.int32).max)
        return age.argmin(axis=2)
