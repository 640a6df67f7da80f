"""The caches that are measured side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlx_lm.models.cache import KVCache, QuantizedKVCache, RotatingKVCache

from h2o_pack.measure.bench.paper import PaperH2OKVCache
from h2o_py.config import H2OConfig
from h2o_py.models import STORAGES

SINKS = 4
_SAFE_RECENT = 64


@dataclass(frozen=True)
class MeasuredCache:
    """A cache of one layer.

    Args:
        name: key in JSON.
        title: in tables.
        make: returns a cache of a capacity C and a group size of quantized rows.
        bounded: whether the cache itself keeps to C rows; others are trimmed where one
            layer is measured, and grow on a model.

    """

    name: str
    title: str
    make: Callable[[int, int], Any]
    bounded: bool = True


def default(capacity: int) -> H2OConfig:
    """Return half of the rows for heavy hitters, or fewer where 64 recent tokens need room."""
    heavy = min(capacity // 2, capacity - SINKS - _SAFE_RECENT)
    return H2OConfig(capacity, sink_size=SINKS, heavy_budget=heavy)


def paper(capacity: int) -> H2OConfig:
    """Return the published policy with the budgets of `default`."""
    return H2OConfig.paper(
        capacity, sink_size=SINKS, heavy_budget=default(capacity).heavy_budget
    )


def ours(storage: str) -> Callable[[int, int], Any]:
    """Return what makes h2o_py's cache of a storage."""
    return lambda capacity, group_size: STORAGES[storage](default(capacity), group_size)


CACHES = (
    MeasuredCache("kv", "mlx-lm KVCache", lambda _c, _g: KVCache(), bounded=False),
    MeasuredCache(
        "rotating", "mlx-lm RotatingKVCache", lambda c, _g: RotatingKVCache(c, SINKS)
    ),
    MeasuredCache(
        "kv-8bit",
        "mlx-lm QuantizedKVCache 8-bit",
        lambda _c, g: QuantizedKVCache(g, 8),
        bounded=False,
    ),
    MeasuredCache("paper", "H2O as the paper does it", lambda c, _g: PaperH2OKVCache(paper(c))),
    MeasuredCache("dense", "H2O dense", ours("dense")),
    MeasuredCache("8bit", "H2O 8-bit", ours("8")),
    MeasuredCache("k8v4", "H2O keys 8, values 4", ours("k8v4")),
    MeasuredCache("4bit", "H2O 4-bit", ours("4")),
    MeasuredCache("rotated-4bit", "H2O rotated, 4-bit", ours("rotated4")),
    MeasuredCache("mixed", "H2O mixed, heavy 8, recent 16", ours("r16h8")),
)

BY_NAME = {each.name: each for each in CACHES}
