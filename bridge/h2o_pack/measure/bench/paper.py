"""H2O as published, in MLX operations: the baseline that eviction is compared with."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as mlx_lm_cache
from mlx_lm.models.cache import KVCache

from h2o_py.config import H2OConfig


class PaperH2OKVCache(mlx_lm_cache._BaseCache):  # noqa: SLF001
    """Sinks, heavy hitters by a moving average of |logit|, and recent tokens.

    Attention is MLX's own, a second matrix product computes the logits again, and rows are
    evicted by gathering the others. Made fast where that changes no result: rows stay in
    the order of positions in mlx_lm's `KVCache`, which writes in place, and a step gathers
    once (`take_along_axis` over keys, values and scores) and puts the new token into the
    row that came free. A chunk's scores enter as the mean over its queries.

    Args:
        config: the budgets and the decay; the score is the published one whatever it says.

    """

    def __init__(self, config: H2OConfig) -> None:
        self.config = config
        self.offset = 0
        self.scores: mx.array | None = None
        self._rows = KVCache()
        self._attends = False

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write new tokens [B, Hkv, L, D]; returns all rows [B, Hkv, N, D]."""
        tokens, length = keys.shape[2], self._rows.offset
        scores = mx.zeros(keys.shape[:3])
        if self.scores is not None:
            if tokens == 1 and length == self.config.max_size:
                self._gather(self._all_but_the_lightest(), length - 1)
            scores = mx.concatenate([self.scores[..., : self._rows.offset], scores], axis=2)
        self.scores = scores
        self.offset += tokens
        self._attends = True
        rows: tuple[mx.array, mx.array] = self._rows.update_and_fetch(keys, values)
        return rows

    def awaits_attention(self, _keys: mx.array, _values: mx.array) -> bool:
        """Return whether attention comes here: once after each write."""
        return self._attends

    def attend(
        self,
        queries: mx.array,
        *,
        scale: float,
        mask: mx.array | str | None = None,
        sinks: mx.array | None = None,
    ) -> mx.array:
        """Return the attention [B, Hq, L, D] of the tokens just written, and update scores."""
        keys, values = self._in_use()
        out: mx.array = mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=scale, mask=mask, sinks=sinks
        )
        batch, heads, tokens, dim = queries.shape
        kv_heads, length = keys.shape[1:3]
        grouped = queries.reshape(batch, kv_heads, -1, dim) * scale
        sizes = mx.abs((grouped @ keys.swapaxes(-1, -2)).astype(mx.float32))
        if tokens > 1:
            seen = mx.arange(length) <= mx.arange(length - tokens, length)[:, None]
            by_query = sizes.reshape(batch, kv_heads, -1, tokens, length)
            mean = mx.where(seen, by_query, 0).sum(axis=(2, 3)) / seen.sum(axis=0)
            mean = mean / (heads // kv_heads)
        else:
            mean = sizes.mean(axis=2)
        assert self.scores is not None  # noqa: S101  attend comes after update_and_fetch
        decay = self.config.decay
        self.scores = decay * self.scores + (1 - decay) * mean
        [out] = mx.depends([out], [self.scores])  # evaluating a token evaluates its scores
        self.settle()
        return out

    def settle(self) -> None:
        """Evict the rows that a chunk brought beyond the budget."""
        self._attends = False
        length, size = self._rows.offset, self.config.max_size
        if length <= size or self.scores is None:
            return
        sink, recent = self.config.sink_size, length - self.config.recent_budget
        order = mx.argsort(self.scores[..., sink:recent], axis=-1)[..., length - size :]
        heavy = mx.sort(order.astype(mx.int32) + sink, axis=-1)
        every = mx.zeros((*heavy.shape[:2], 1), mx.int32)
        first, last = every + mx.arange(sink), every + mx.arange(recent, length)
        self._gather(mx.concatenate([first, heavy, last], axis=-1), size)

    def make_mask(self, *args: Any, **options: Any) -> mx.array | str | None:
        """Return the causal mask over the rows, as `KVCache` does."""
        mask: mx.array | str | None = self._rows.make_mask(*args, **options)
        return mask

    @property
    def state(self) -> Any:
        """Keys, values and scores; empty while the cache is."""
        return [] if self.scores is None else [*self._in_use(), self.scores]

    @state.setter
    def state(self, arrays: Any) -> None:
        raise NotImplementedError("a baseline is not loaded")

    def trim(self, n: int) -> int:
        """Take back the `n` newest tokens."""
        self.offset -= n
        trimmed: int = self._rows.trim(n)
        return trimmed

    def _in_use(self) -> tuple[mx.array, mx.array]:
        held: Any = self._rows
        return held.keys[..., : held.offset, :], held.values[..., : held.offset, :]

    def _all_but_the_lightest(self) -> mx.array:
        """[B, Hkv, C] rows in order without the one that leaves; the last one twice."""
        assert self.scores is not None  # noqa: S101  there are rows
        size, sink = self.config.max_size, self.config.sink_size
        recent = size + 1 - self.config.recent_budget
        victim = mx.argmin(self.scores[..., sink:recent], axis=-1, keepdims=True) + sink
        rows = mx.arange(size)
        return mx.minimum(rows + (rows >= victim), size - 1)

    def _gather(self, rows: mx.array, length: int) -> None:
        """Put `rows` [B, Hkv, M] in the place of all; the first `length` of them count."""
        held: Any = self._rows
        assert self.scores is not None  # noqa: S101  there are rows
        held.keys = mx.take_along_axis(held.keys, rows[..., None], axis=2)
        held.values = mx.take_along_axis(held.values, rows[..., None], axis=2)
        self.scores = mx.take_along_axis(self.scores, rows, axis=2)
        held.offset = length
