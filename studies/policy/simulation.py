"""A bounded cache stepped token by token over many sequences, for any policy.

What `h2o_py.reference` does for L = 1, with the arithmetic of eviction left to a policy. Rows
beyond the budget are overwritten as in the real cache, so a run costs what its budget does.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from studies.policy.model import Array, Model
from studies.policy.rows import Rows

Integers = np.ndarray[Any, np.dtype[np.int32]]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one run gave, a row for each sequence."""

    losses: Array
    """[B, T]: nats of each token given those before; the first is 0."""
    right: np.ndarray[Any, np.dtype[np.bool_]]
    """[B, T]: whether the most probable token was the true one."""
    positions: list[Integers]
    """A layer each: [B, Hkv, C], the positions kept at the end, sorted; -1 where empty."""


def simulate(model: Model, tokens: Integers, policy: Any, max_size: int) -> Outcome:
    """Run token ids [B, T] through caches of `max_size` rows, on average, under a policy."""
    batch, length = tokens.shape
    layers = [
        Rows(batch, model.kv_heads, model.head_dim, size, policy, layer)
        for layer, size in enumerate(policy.sizes(max_size, model.layers))
    ]
    losses = np.zeros((batch, length), np.float32)
    right = np.zeros((batch, length), bool)
    group = model.heads // model.kv_heads
    scale = model.head_dim**-0.5
    for t in range(length):
        hidden = model.embed(tokens[:, t])
        for index, rows in enumerate(layers):
            q, k, v = model.projected(hidden, index, t)
            grouped = q.reshape(batch, model.kv_heads, group, model.head_dim)
            attended = rows.step(grouped * np.float32(scale), k, v, t)
            hidden = model.after_attention(hidden, attended, index)
        if t + 1 < length:
            log = model.log_probabilities(hidden)
            losses[:, t + 1] = -np.take_along_axis(log, tokens[:, t + 1, None], 1)[:, 0]
            right[:, t + 1] = log.argmax(axis=1) == tokens[:, t + 1]
    return Outcome(losses, right, [np.sort(rows.positions, axis=2) for rows in layers])
