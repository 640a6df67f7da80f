"""Makes the caches of contenders for one model, and counts their bytes."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache

from h2o_pack.architectures.model import Layer
from h2o_pack.files.text import usage_error
from h2o_pack.measure.evaluation.contenders import (
    ALL_STORAGES,
    FULL_STORAGES,
    REVERSED,
    ROTATING,
    SINKS,
    UNBOUNDED,
    Contender,
    policies,
)
from h2o_pack.measure.evaluation.controls import (
    ControlCache,
    OldestCache,
    RandomCache,
    SabotagedCache,
)
from h2o_pack.memory import formulas
from h2o_pack.memory.archive import LayerArchive
from h2o_pack.memory.storages import TRIED, Storage
from h2o_py.budgets import Budgets
from h2o_py.config import H2OConfig
from h2o_py.errors import H2OConfigWarning, H2OError
from h2o_py.mixed_cache import MixedH2OKVCache
from h2o_py.models import make_h2o_cache
from h2o_py.recall import H2ORecall

BudgetsFor = Callable[[Contender], Budgets]
"""Budgets by layer for a contender, whose rows are the average of the layers."""

_STORED = 2
"""Bytes of an element where a row is stored as it comes, also if float32 is computed in."""
_NEVER_EVICTS = 1 << 14
"""Rows of a cache that is to keep all."""

_CONTROLS: dict[str, Callable[[H2OConfig, int], ControlCache]] = {
    "oldest": lambda config, _seed: OldestCache(config),
    "random": RandomCache,
    "sabotaged": lambda config, _seed: SabotagedCache(config),
}


class CacheFactory:
    """Makes the caches of contenders for one model.

    Args:
        model: of mlx_lm.
        budgets: for contenders whose budgets differ from layer to layer.

    """

    def __init__(self, model: Any, budgets: BudgetsFor | None = None) -> None:
        self._model = model
        self._budgets = budgets
        self._layers, element = _full_layers(model)
        self._element = min(element, _STORED)
        self._group_size = _group_size(tuple(self._layers.values()))

    def caches(
        self, contender: Contender, seed: int = 0, pinned: tuple[tuple[int, int], ...] = ()
    ) -> list[Any]:
        """Make new caches, one per layer.

        Args:
            contender: with its rows.
            seed: of a control that draws at random.
            pinned: ranges of positions that contenders with `+pinned` never evict.

        Raises:
            UserError: the contender needs budgets by layer, or the model has no layer to bound.
            H2OError: h2o_py refuses the model or so few rows.

        """
        if contender.policy == UNBOUNDED:
            return self._unbounded(contender)
        if contender.policy == ROTATING:
            return self._replaced(lambda _i: RotatingKVCache(contender.rows, SINKS))
        config, budgets = contender.config(pinned), self._by_layer(contender)

        def of_layer(index: int) -> H2OConfig:
            return _config_of(index, config, budgets)

        control = policies()[contender.policy].control
        if control is not None:
            make = _CONTROLS[control]
            return self._replaced(lambda i: make(of_layer(i), 1000 * seed + i))
        if contender.storage in REVERSED:
            stored = self._storage(contender)
            bits = (stored.heavy[0], (stored.recent or stored.heavy)[0], stored.group_size)
            return self._replaced(lambda i: MixedH2OKVCache(of_layer(i), *bits))
        with warnings.catch_warnings():  # small windows are tried on purpose
            warnings.simplefilter("ignore", H2OConfigWarning)
            return make_h2o_cache(
                self._model,
                config,
                kv=contender.storage,
                group_size=self._group_size,
                budgets=budgets,
            )

    def bytes(self, contender: Contender, length: int) -> int:
        """Count the bytes of the full caches of one sequence of `length` tokens.

        All that is allocated counts: keys and values, scores, positions, novelty, and what
        each head has once (`h2o_pack.memory.formulas`).
        """
        layers = self._layers.items()
        if contender.policy in (UNBOUNDED, ROTATING):
            rows, bits = contender.rows or length, FULL_STORAGES[contender.storage].heavy
            row = [
                formulas.row_bytes(each, bits, self._group_size, self._element)
                for _, each in layers
            ]
            return rows * sum(row)
        config, budgets = contender.config(), self._by_layer(contender)
        return sum(self._h2o_bytes(i, each, contender, config, budgets) for i, each in layers)

    def archive_bytes(self, contender: Contender, length: int) -> int:
        """Count the bytes of what recall keeps of `length` tokens: keys, values, novelty."""
        if contender.recall is None:
            return 0
        archived = [
            LayerArchive(each, H2ORecall().archive_bits, self._group_size, self._element)
            for each in self._layers.values()
        ]
        return length * sum(each.token_bytes for each in archived)

    def _unbounded(self, contender: Contender) -> list[Any]:
        if contender.storage == "dense":
            return list(make_prompt_cache(self._model))
        return make_h2o_cache(
            self._model,
            H2OConfig(_NEVER_EVICTS),
            kv=contender.storage,
            group_size=self._group_size,
        )

    def _h2o_bytes(
        self,
        index: int,
        layer: Layer,
        contender: Contender,
        common: H2OConfig,
        budgets: Budgets | None,
    ) -> int:
        config = _config_of(index, common, budgets)
        sizes = (config.max_size, config.recent_budget)
        full = 2 * config.max_size  # after so many tokens both parts of a mixed cache are full
        stored = self._storage(contender)
        kv = formulas.evicting_kv_bytes(layer, stored, sizes, full, self._element)
        return kv + formulas.ledger_bytes(layer, config)

    def rows_for(self, contender: Contender, limit: int, length: int) -> int:
        """Return the most rows whose bytes are at most `limit`; 0 where all rows stay."""
        if not contender.bounded:
            return 0
        fits, too_many = 0, 2
        while self._takes(contender, too_many, length) <= limit:
            fits, too_many = too_many, 2 * too_many
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            if self._takes(contender, middle, length) <= limit:
                fits = middle
            else:
                too_many = middle
        return fits

    def _takes(self, contender: Contender, rows: int, length: int) -> int:
        try:
            return self.bytes(contender.with_rows(rows), length)
        except H2OError:  # too few rows for its budgets: more are needed anyway
            return 0

    def _storage(self, contender: Contender) -> Storage:
        stored = ALL_STORAGES[contender.storage]
        return dataclasses.replace(stored, group_size=self._group_size)

    def _by_layer(self, contender: Contender) -> Budgets | None:
        if policies()[contender.policy].by_layer is None:
            return None
        if self._budgets is None:
            raise usage_error(
                f"{contender.name} needs budgets that differ from layer to layer",
                "Give a profile (--profile FILE), or leave it out.",
            )
        return self._budgets(contender)

    def _replaced(self, make: Callable[[int], Any]) -> list[Any]:
        own = make_prompt_cache(self._model)
        if not self._layers:
            kinds = ", ".join(sorted({type(cache).__name__ for cache in own}))
            raise usage_error(
                f"the model has no layer with a plain KVCache (it uses {kinds})",
                "Choose a model with full attention: this one has nothing to bound.",
            )
        return [make(i) if type(cache) is KVCache else cache for i, cache in enumerate(own)]


def _config_of(layer: int, common: H2OConfig, budgets: Budgets | None) -> H2OConfig:
    if budgets is None:
        return common
    with warnings.catch_warnings():  # small windows are tried on purpose
        warnings.simplefilter("ignore", H2OConfigWarning)
        return budgets.config_of(layer, common)


def _group_size(layers: Sequence[Layer]) -> int:
    """Return the largest group of quantized elements that divides every head dim."""
    dims = {dim for layer in layers for dim in (layer.key_dim, layer.value_dim)}
    return next((size for size in TRIED if all(dim % size == 0 for dim in dims)), 32)


def _full_layers(model: Any) -> tuple[dict[int, Layer], int]:
    """Return the layers with full attention by their cache's index, and bytes per element."""
    caches = make_prompt_cache(model)
    mx.eval(model(mx.zeros((1, 1), mx.int32), cache=caches))
    found, element = {}, 0
    for index, cache in enumerate(caches):
        if type(cache) is KVCache:
            keys, values, *_ = cache.state
            found[index] = Layer("full", keys.shape[1], keys.shape[3], values.shape[3])
            element = keys.itemsize
    return found, element


def ledger_positions(caches: Sequence[Any]) -> list[mx.array]:
    """Return the kept positions [B, Hkv, C] of each H2O cache."""
    found = [getattr(cache, "positions", None) for cache in caches]
    return [positions for positions in found if positions is not None]
