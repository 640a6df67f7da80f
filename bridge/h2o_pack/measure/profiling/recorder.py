"""A model's own caches, which also show the logits of each attention.

`h2o_py.routing` lets a cache compute the attention over the keys and values that it
returned. Here the model's own caches do so, compute it with the function that reports
logits, and hand those on before the next layer begins: nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import CacheList, KVCache

from h2o_pack.measure.profiling.report import Kind
from h2o_py import fast


@dataclass(frozen=True)
class ObservedAttention:
    """One layer's attention for a chunk of tokens.

    logits: float32 [Hq, L, N], very low where a row is hidden. end: the position after the
    newest token; column j is position end - N + j, row l is end - L + l. sinks: [Hq] logits
    of the model that have no token, or None.
    """

    logits: mx.array
    kv_heads: int
    end: int
    sinks: mx.array | None


Watch = Callable[[int, ObservedAttention], None]


def attention_caches(caches: list[Any]) -> dict[int, Any]:
    """Return the caches that attention reads, by layer; layers without one are missing."""
    found = {}
    for index, cache in enumerate(caches):
        members = cache.caches if isinstance(cache, CacheList) else [cache]
        attending = [each for each in members if hasattr(each, "update_and_fetch")]
        if len(attending) == 1:
            found[index] = attending[0]
    return found


def record(caches: list[Any], watch: Watch) -> None:
    """Make the attention of empty caches call `watch(layer, seen)` from now on."""
    for index, cache in attention_caches(caches).items():
        kind = type(cache)
        cache.__class__ = type(f"Recording{kind.__name__}", (_Recording, kind), {})
        cache.watch, cache.layer, cache.fetched = watch, index, None


def kind_of(cache: Any) -> tuple[Kind, int | None]:
    """Return what attention sees through a cache: "full", "sliding" (its window) or "other"."""
    if type(cache) is KVCache:
        return "full", None
    window = getattr(cache, "max_size", None)
    return ("other", None) if window is None else ("sliding", int(window))


class _Recording:
    """Mixed into a cache of mlx_lm, whose contract it leaves alone. Batch 1."""

    watch: Watch
    layer: int
    fetched: tuple[mx.array, mx.array] | None
    offset: int

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        self.fetched = super().update_and_fetch(keys, values)  # type: ignore[misc]
        return self.fetched

    def awaits_attention(self, keys: mx.array, values: mx.array) -> bool:
        return (
            self.fetched is not None and keys is self.fetched[0] and values is self.fetched[1]
        )

    def attend(
        self,
        queries: mx.array,
        *,
        scale: float,
        mask: mx.array | str | None = None,
        sinks: mx.array | None = None,
    ) -> mx.array:
        assert self.fetched is not None  # noqa: S101  routing asked awaits_attention first
        keys, values = self.fetched
        self.fetched = None
        out, logits = fast.scaled_dot_product_attention_with_scores(
            queries, keys, values, scale=scale, mask=mask, sinks=sinks
        )
        heads, tokens = queries.shape[1:3]
        mx.eval(out, logits)
        by_head = logits.reshape(heads, tokens, -1)
        self.watch(self.layer, ObservedAttention(by_head, keys.shape[1], self.offset, sinks))
        return out
