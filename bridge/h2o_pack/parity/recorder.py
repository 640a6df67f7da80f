"""H2O caches that remember what a model gave them and what they answered."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import CacheList

from h2o_py import H2OKVCache, fast, make_h2o_cache
from h2o_py.config import H2OConfig


def recording_caches(
    model: Any, config: H2OConfig, kv: str, group_size: int
) -> tuple[list[Any], list[Any]]:
    """Make a model's caches, and return with them those that evict, which record.

    Layers with a sliding window or a recurrent state keep the model's own caches.
    kv: how rows are stored, a name in h2o_py.models.STORAGES.
    """
    caches = make_h2o_cache(model, config, kv=kv, group_size=group_size)
    members = [m for c in caches for m in (c.caches if isinstance(c, CacheList) else [c])]
    recorders: list[Any] = [each for each in members if isinstance(each, H2OKVCache)]
    kind = recording(type(recorders[0]))
    for cache in recorders:
        cache.__class__ = kind
        cache.backend, cache.scale, cache.step = fast, 0.0, {}
    return caches, recorders


def recording(kind: type[Any]) -> type[Any]:
    """Return a class of caches that also keep the arrays of the step just made."""

    class RecordingCache(kind):  # type: ignore[misc]  # the kind is known when it runs
        def update_and_fetch(
            self, keys: mx.array, values: mx.array
        ) -> tuple[mx.array, mx.array]:
            self.step = {"k": keys, "v": values}
            fetched: tuple[mx.array, mx.array] = super().update_and_fetch(keys, values)
            return fetched

        def attend(self, queries: mx.array, **options: Any) -> mx.array:
            out: mx.array = super().attend(queries, **options)
            self.scale = options["scale"]
            self.step |= {"q": queries, "out": out, "scores": self.scores}
            return out

        def taken(self) -> dict[str, mx.array]:
            """Return the step's arrays by the trace's names, the kept positions among them."""
            arrays = self.step | {"positions": self.positions, "held": self.ledger.held}
            return {what: array for what, array in arrays.items() if array is not None}

    return RecordingCache
