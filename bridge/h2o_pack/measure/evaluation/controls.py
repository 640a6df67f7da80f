"""Simple policies that a good one must beat.

They use the real cache: its rows, its writes over `victim`, its attention and its scores.
Only the choice of the row that goes next is another one, made here from the ledger.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from h2o_py.cache import H2OKVCache
from h2o_py.config import H2OConfig
from h2o_py.ledger import Ledger


class ControlCache(H2OKVCache):
    """An H2O cache whose victim is the unprotected row of least `importance`.

    Protected are sinks, the newest `recent_budget` positions and pinned ranges, as ever.
    Chunks must fit into `max_size`: what a longer one evicts is not chosen here.
    """

    def importance(self, ledger: Ledger) -> mx.array:
        """Return float32 [B, Hkv, C]; the least important row is evicted first."""
        raise NotImplementedError

    def _attend(self, queries: mx.array | None, **options: Any) -> mx.array | None:
        if self.length > self.max_size:
            raise ValueError(
                f"{type(self).__name__} reads at most max_size = {self.max_size} tokens at "
                "once. Feed the text token by token."
            )
        out = super()._attend(queries, **options)
        if self.length >= self.max_size and self._ledger is not None:
            self._ledger = self._ledger._replace(victim=self._least(self._ledger))
        return out

    def _least(self, ledger: Ledger) -> mx.array:
        config, positions = self.config, ledger.positions
        held = positions < config.sink_size
        held = held | (positions >= self.offset + 1 - config.recent_budget)
        for begin, end in config.pinned:
            held = held | ((positions >= begin) & (positions < end))
        importance = mx.where(held, mx.inf, self.importance(ledger))
        return mx.argmin(importance, axis=-1).astype(mx.int32)


class OldestCache(ControlCache):
    """Sinks and a window: the oldest row goes."""

    def importance(self, ledger: Ledger) -> mx.array:
        """Return the positions."""
        return ledger.positions.astype(mx.float32)


class RandomCache(ControlCache):
    """Any row goes, each with the same chance; other ones for each `seed`."""

    def __init__(self, config: H2OConfig, seed: int) -> None:
        super().__init__(config)
        self._key = mx.random.key(seed)

    def importance(self, ledger: Ledger) -> mx.array:
        """Return noise, new for each token."""
        self._key, now = mx.random.split(self._key)
        return mx.random.uniform(shape=ledger.positions.shape, key=now)


class SabotagedCache(ControlCache):
    """The row that the default policy would keep longest goes."""

    def importance(self, ledger: Ledger) -> mx.array:
        """Return the configuration's own importance, negated."""
        scores = mx.maximum(ledger.scores, 0.0)
        most = scores.max(axis=-1, keepdims=True)
        share = mx.where(most > 0, scores / most, 0.0)
        return -(share + self.config.novelty * ledger.novelty)
