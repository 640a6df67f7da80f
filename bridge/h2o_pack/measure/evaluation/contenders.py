"""Contenders, the kinds of caches to compare: finds them by name, and makes their caches."""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache

from h2o_pack.errors import UserError, nearest, usage_error
from h2o_pack.memory import cache_bytes
from h2o_pack.memory.cache_bytes import LayerArchive
from h2o_pack.memory.storages import STORAGES
from h2o_pack.model import Layer
from h2o_py.budgets import Budgets
from h2o_py.config import POLICIES, H2OConfig, H2ORecall, without_warnings
from h2o_py.errors import H2OError
from h2o_py.models import make_h2o_cache
from h2o_py.storages import GROUP_SIZES, group_size_of, storage_name

SINKS = 4
UNBOUNDED, ROTATING, DEFAULT = "full", "rotating", "default"
NAMES = (UNBOUNDED, ROTATING, DEFAULT, *(name for name in POLICIES if name != "standard"))
"""What a contender's name begins with: mlx-lm's own caches, and policies."""
_NAME = re.compile(
    r"(?P<policy>[^/+]*)(/(?P<storage>[^/+]*))?(?P<budgets>\+budgets)?"
    r"(?P<recall>\+recall(\[(?P<settings>[^\]]*)\])?)?"
)

FULL_STORAGES = {name: stored for name, stored in STORAGES.items() if stored.recent is None}
"""The storages that a cache that keeps all rows can use, by name."""


@dataclass(frozen=True)
class Contender:
    """A kind of cache to compare: a policy with a storage.

    name: as "policy/storage+budgets+recall". policy: one of NAMES. by_layer: whether layers
    have budgets of their own. rows: per KV head, on average over the layers; 0 to keep all
    rows. recall: its settings; None for no recall.
    """

    name: str
    policy: str
    storage: str = "16"
    by_layer: bool = False
    rows: int = 0
    recall: H2ORecall | None = None

    def with_rows(self, rows: int) -> Contender:
        """Return the contender with this number of rows."""
        return dataclasses.replace(self, rows=rows)

    @property
    def bounded(self) -> bool:
        """Whether the cache limits its rows."""
        return self.policy != UNBOUNDED

    @property
    def title(self) -> str:
        """The contender's name in tables."""
        stored = "" if self.storage == "16" else f", kv {self.storage}"
        if self.policy == UNBOUNDED:
            return f"full cache{stored}"
        if self.policy == ROTATING:
            return "RotatingKVCache, 4 sinks"
        policy = "the default" if self.policy == DEFAULT else self.policy
        by_layer = ", budgets by layer" if self.by_layer else ""
        return f"H2O, {policy}{stored}{by_layer}{_recall_title(self.recall)}"

    @without_warnings()
    def config(self) -> H2OConfig:
        """Return the policy's configuration for `rows`; H2OError if they are too few."""
        if self.policy == UNBOUNDED:
            return H2OConfig.unbounded()
        policy = "standard" if self.policy == DEFAULT else self.policy
        return POLICIES[policy](self.rows, sink_size=SINKS, recall=self.recall)


def find_contender(name: str) -> Contender:
    """Return the contender with a name; its `rows` are not set.

    Raises UserError, which offers the nearest name: the name is unknown.
    """
    parts = _NAME.fullmatch(name)
    policy = parts["policy"] if parts else name.partition("/")[0].partition("+")[0]
    if parts is None or policy not in NAMES:
        raise _unknown(f'there is no contender "{name}"', policy, NAMES)
    storage = storage_name(parts["storage"] or "16")
    stored = FULL_STORAGES if policy == UNBOUNDED else STORAGES
    if storage not in stored:
        raise _unknown(f'"{name}" has a storage that does not exist', storage, stored)
    recalls, by_layer = parts["recall"] is not None, bool(parts["budgets"])
    is_upstreams = policy in (UNBOUNDED, ROTATING)
    stores = policy == UNBOUNDED or storage == "16"
    if is_upstreams and (by_layer or recalls or not stores):
        has_more = by_layer or recalls
        only = "recall and budgets are for" if has_more else "other storages are for"
        raise usage_error(
            f'there is no contender "{name}": {only} caches that evict as H2O does',
            f'Use "{policy}" alone.',
        )
    recall = H2ORecall.from_words((parts["settings"] or "").split()) if recalls else None
    if parts["storage"]:
        name = name.replace(parts["storage"], storage, 1)
    return Contender(name, policy, storage, by_layer, recall=recall)


def _recall_title(recall: H2ORecall | None) -> str:
    if recall is None:
        return ""
    usual = H2ORecall().to_dict()
    own = [f"{key} {value}" for key, value in recall.to_dict().items() if value != usual[key]]
    return ", recall" + (f" ({', '.join(own)})" if own else "")


def _unknown(problem: str, part: str, names: Iterable[str]) -> UserError:
    near = nearest(part, names)
    return usage_error(problem, f"{near}Choose from: {', '.join(names)}.")


_STORED = 2
"""Bytes counted for an element that is not quantized, even if the model computes in float32."""
_MOST_ROWS = 1 << 24
"""A number of rows that no limit of bytes allows."""


class CacheFactory:
    """Makes caches for one model; budgets: those of contenders whose layers have their own."""

    def __init__(self, model: Any, budgets: Budgets | None = None) -> None:
        self._model = model
        self._budgets = budgets
        self._layers, element = _full_layers(model)
        self._element = min(element, _STORED)
        self._group_size = _group_size(tuple(self._layers.values()))

    @without_warnings()
    def caches(self, contender: Contender) -> list[Any]:
        """Make new caches, one per layer.

        Raises UserError: the contender needs budgets by layer, or the model has no plain
        KVCache to replace. H2OError: h2o_py refuses the model, or the rows because they are too
        few.
        """
        if contender.policy == ROTATING:
            return self._rotating(contender.rows)
        return make_h2o_cache(
            self._model,
            contender.config(),
            kv=contender.storage,
            group_size=self._group_size,
            budgets=self._by_layer(contender),
        )

    def bytes(self, contender: Contender, length: int) -> int:
        """Count the bytes of the contender's caches, all full, after `length` tokens.

        All arrays count: keys and values, scores, positions, victims, and with recall the
        sketch, but not the archive, which may be in files.
        """
        size, element = self._group_size, self._element
        if contender.policy in (UNBOUNDED, ROTATING):
            bits = FULL_STORAGES[contender.storage].heavy
            row = sum(
                cache_bytes.row_bytes(layer, bits, size, element)
                for layer in self._layers.values()
            )
            return (contender.rows or length) * row
        common, budgets = contender.config(), self._by_layer(contender)
        stored = dataclasses.replace(STORAGES[contender.storage], group_size=size)
        total = 0
        for index, layer in self._layers.items():
            config = _config_of(index, common, budgets)
            full = 2 * config.max_size  # tokens that fill both parts of a mixed cache
            total += cache_bytes.evicting_kv_bytes(layer, stored, config, full, element)
            total += cache_bytes.ledger_bytes(layer, config)
        return total + sum(a.sketch(length) for a in self._archives(contender))

    def archive_bytes(self, contender: Contender, length: int) -> int:
        """Count the bytes of recall's archive of `length` tokens: keys and values."""
        return length * sum(a.token_bytes for a in self._archives(contender))

    def _archives(self, contender: Contender) -> list[LayerArchive]:
        if contender.recall is None:
            return []
        bits = contender.recall.archive_bits
        return [LayerArchive(layer, bits, self._element) for layer in self._layers.values()]

    def rows_for(self, contender: Contender, limit: int, length: int) -> int:
        """Return the largest number of rows that take at most `limit` bytes.

        Returns 0 for a contender that keeps all rows.
        """
        if not contender.bounded:
            return 0

        def takes(rows: int) -> int:
            try:
                return self.bytes(contender.with_rows(rows), length)
            except H2OError:  # too few rows for the budgets: 0 bytes let the search try more
                return 0

        return bisect.bisect_right(range(1, _MOST_ROWS), limit, key=takes)

    def _by_layer(self, contender: Contender) -> Budgets | None:
        if contender.by_layer and self._budgets is None:
            raise usage_error(
                f"{contender.name} needs budgets by layer",
                "Give the file that `h2o-pack profile --budgets` wrote as --layer-budgets.",
            )
        return self._budgets if contender.by_layer else None

    def _rotating(self, rows: int) -> list[Any]:
        own = make_prompt_cache(self._model)
        if not self._layers:
            kinds = ", ".join(sorted({type(cache).__name__ for cache in own}))
            raise usage_error(
                f"the model has no layer with a plain KVCache (it uses {kinds})",
                "Choose a model with full attention: H2O cannot bound the caches of this one.",
            )
        return [RotatingKVCache(rows, SINKS) if type(c) is KVCache else c for c in own]


@without_warnings()
def _config_of(layer: int, common: H2OConfig, budgets: Budgets | None) -> H2OConfig:
    return common if budgets is None else budgets.config_of(layer, common)


def _group_size(layers: Sequence[Layer]) -> int:
    """Return the group size that packages use for these layers, or the smallest there is."""
    dims = {dim for layer in layers for dim in (layer.key_dim, layer.value_dim)}
    return group_size_of(dims) or min(GROUP_SIZES)


def _full_layers(model: Any) -> tuple[dict[int, Layer], int]:
    """Return the layers with full attention, by cache index, and the bytes of an element."""
    caches = make_prompt_cache(model)
    mx.eval(model(mx.zeros((1, 1), mx.int32), cache=caches))
    layers, element = {}, 0
    for index, layer_cache in enumerate(caches):
        if type(layer_cache) is KVCache:
            keys, values, *_ = layer_cache.state
            layers[index] = Layer("full", keys.shape[1], keys.shape[3], values.shape[3])
            element = keys.itemsize
    return layers, element
