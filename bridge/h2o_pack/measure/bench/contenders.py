"""The caches that are measured side by side; one line of the table adds one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from mlx_lm.models.cache import KVCache, QuantizedKVCache, RotatingKVCache

from h2o_pack.measure.bench.paper import PaperH2OKVCache
from h2o_py.config import H2OConfig

SINKS = 4
_SAFE_RECENT = 64


@dataclass(frozen=True)
class Contender:
    """A cache of one layer.

    Args:
        name: key in JSON.
        title: for people.
        make: a cache from its capacity C and the group size of quantised rows.
        bounded: whether the cache itself keeps to C rows; others are trimmed where one
            layer is measured, and grow on a model.

    """

    name: str
    title: str
    make: Callable[[int, int], Any]
    bounded: bool = True


def ours(module: str, name: str, **options: Any) -> Callable[[int, int], Any]:
    """The cache class `name` of h2o_py.`module`, looked up when a cache is made."""

    def make(capacity: int, group_size: int) -> Any:
        settings = {"group_size": group_size, **options} if options else {}
        cls = getattr(import_module(f"h2o_py.{module}"), name)
        return cls(H2OConfig(**budgets(capacity)), **settings)

    return make


def budgets(capacity: int) -> dict[str, Any]:
    """Half of the rows for heavy hitters, fewer where 64 recent tokens would not fit."""
    heavy = min(capacity // 2, capacity - SINKS - _SAFE_RECENT)
    return {"max_size": capacity, "sink_size": SINKS, "heavy_budget": heavy}


CONTENDERS = (
    Contender("kv", "mlx-lm KVCache", lambda _c, _g: KVCache(), bounded=False),
    Contender("rotating", "mlx-lm RotatingKVCache", lambda c, _g: RotatingKVCache(c, SINKS)),
    Contender(
        "kv-8bit",
        "mlx-lm QuantizedKVCache 8-bit",
        lambda _c, g: QuantizedKVCache(g, 8),
        bounded=False,
    ),
    Contender(
        "paper",
        "H2O as the paper does it",
        lambda c, _g: PaperH2OKVCache(H2OConfig.paper(**budgets(c))),
    ),
    Contender("dense", "H2O dense", ours("cache", "H2OKVCache")),
    Contender("8bit", "H2O 8-bit", ours("quantized_cache", "QuantizedH2OKVCache", bits=8)),
    Contender(
        "k8v4",
        "H2O keys 8, values 4",
        ours("quantized_cache", "QuantizedH2OKVCache", key_bits=8, value_bits=4),
    ),
    Contender("4bit", "H2O 4-bit", ours("quantized_cache", "QuantizedH2OKVCache", bits=4)),
    Contender(
        "mixed",
        "H2O mixed, heavy 8, recent 16",
        ours("mixed_cache", "MixedH2OKVCache", heavy_bits=8, recent_bits=16),
    ),
)

BY_NAME = {contender.name: contender for contender in CONTENDERS}


def available() -> tuple[tuple[Contender, ...], dict[str, str]]:
    """The contenders that this version can make, and why it cannot make the others."""
    found, missing = [], {}
    for contender in CONTENDERS:
        try:
            contender.make(512, 64)
        except (AttributeError, ImportError) as error:  # noqa: PERF203  a handful of them
            missing[contender.name] = str(error)
        else:
            found.append(contender)
    return tuple(found), missing
