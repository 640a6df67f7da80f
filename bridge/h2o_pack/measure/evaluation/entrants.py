"""Contenders of a certain size, ready to make caches for a model."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache

from h2o_pack.measure.evaluation.contenders import (
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
from h2o_pack.measure.evaluation.sizes import Head
from h2o_py.budgets import Budgets
from h2o_py.config import H2OConfig
from h2o_py.errors import H2OConfigWarning
from h2o_py.mixed_cache import MixedH2OKVCache
from h2o_py.models import STORAGES, make_h2o_cache
from h2o_py.row_format import DENSE, MixedFormat, RowFormat

BudgetsFor = Callable[[Contender, int], Budgets]
"""Budgets by layer for a contender of so many rows, on average."""

_FORMATS: dict[str, RowFormat | MixedFormat] = {
    "dense": DENSE,
    "8": RowFormat(8, 8),
    "k8v4": RowFormat(8, 4),
    "4": RowFormat(4, 4),
    "r16h8": MixedFormat(8, 16),
    "r16h4": MixedFormat(4, 16),
    "r8h4": MixedFormat(4, 8),
    "r8h16": MixedFormat(16, 8),
    "r4h8": MixedFormat(8, 4),
}

_CONTROLS: dict[str, Callable[[H2OConfig, int], ControlCache]] = {
    "oldest": lambda config, _seed: OldestCache(config),
    "random": RandomCache,
    "sabotaged": lambda config, _seed: SabotagedCache(config),
}


@dataclass(frozen=True)
class Entrant:
    """A contender with `rows` rows a KV head; 0 for all that come."""

    contender: Contender
    rows: int


class Stable:
    """Makes the caches of entrants for one model.

    Args:
        model: of mlx_lm.
        budgets: for contenders whose budgets differ from layer to layer.

    """

    def __init__(self, model: Any, budgets: BudgetsFor | None = None) -> None:
        self._model = model
        self._budgets = budgets
        self._layers = _layers(model)
        self.heads = tuple(head for heads in self._layers.values() for head in heads)
        """Of all layers with full attention, one entry a KV head."""
        self._group_size = _group_size(self.heads)

    def caches(
        self, entrant: Entrant, seed: int = 0, pinned: tuple[tuple[int, int], ...] = ()
    ) -> list[Any]:
        """New caches, one a layer.

        Args:
            entrant: the contender and its rows.
            seed: of what is random in it.
            pinned: ranges that contenders with `+pinned` never evict.

        Raises:
            ValueError: the model or so few rows cannot serve it.

        """
        chosen, rows = entrant.contender, entrant.rows
        if chosen.policy == UNBOUNDED:
            return list(make_prompt_cache(self._model))
        if chosen.policy == ROTATING:
            return self._replaced(lambda _i: RotatingKVCache(rows, SINKS))
        config = chosen.config(rows, pinned)
        budgets = self._by_layer(chosen, rows)

        def of_layer(index: int) -> H2OConfig:
            return _config_of(index, config, budgets)

        control = policies()[chosen.policy].control
        if control is not None:
            make = _CONTROLS[control]
            return self._replaced(lambda i: make(of_layer(i), 1000 * seed + i))
        if chosen.storage not in STORAGES:
            form = self._format(chosen)
            assert isinstance(form, MixedFormat)  # noqa: S101  all others are in STORAGES
            bits = (form.heavy_bits, form.recent_bits, form.group_size)
            return self._replaced(lambda i: MixedH2OKVCache(of_layer(i), *bits))
        with warnings.catch_warnings():  # small windows are tried on purpose
            warnings.simplefilter("ignore", H2OConfigWarning)
            return make_h2o_cache(
                self._model,
                config,
                kv=chosen.storage,
                group_size=self._group_size,
                budgets=budgets,
            )

    def bytes(self, entrant: Entrant, length: int) -> int:
        """Bytes of the caches of one sequence of `length` tokens, all layers together."""
        chosen, rows = entrant.contender, entrant.rows
        if chosen.policy == UNBOUNDED:
            return sum(head.plain_row * length for head in self.heads)
        if chosen.policy == ROTATING:
            return sum(head.plain_row * rows for head in self.heads)
        form, config = self._format(chosen), chosen.config(rows)
        budgets = self._by_layer(chosen, rows)
        return sum(
            head.h2o_bytes(_config_of(i, config, budgets), form)
            for i, heads in self._layers.items()
            for head in heads
        )

    def rows_for(self, chosen: Contender, limit: int, length: int) -> int:
        """The most rows whose bytes are at most `limit`.

        Raises:
            ValueError: not even a few fit.

        """
        if not chosen.bounded:
            return 0
        fits, too_many = 0, 2
        while self._takes(chosen, too_many, length) <= limit:
            fits, too_many = too_many, 2 * too_many
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            if self._takes(chosen, middle, length) <= limit:
                fits = middle
            else:
                too_many = middle
        return fits

    def _takes(self, chosen: Contender, rows: int, length: int) -> int:
        try:
            return self.bytes(Entrant(chosen, rows), length)
        except ValueError:  # too few rows for its budgets: more are needed anyway
            return 0

    def _format(self, chosen: Contender) -> RowFormat | MixedFormat:
        form = _FORMATS[chosen.storage]
        return dataclasses.replace(form, group_size=self._group_size)

    def _by_layer(self, chosen: Contender, rows: int) -> Budgets | None:
        if policies()[chosen.policy].by_layer is None:
            return None
        if self._budgets is None:
            raise ValueError(
                f"{chosen.name} needs budgets that differ from layer to layer. Give a "
                "profile (--profile FILE), or leave it out."
            )
        return self._budgets(chosen, rows)

    def _replaced(self, make: Callable[[int], Any]) -> list[Any]:
        own = make_prompt_cache(self._model)
        if not any(type(cache) is KVCache for cache in own):
            kinds = ", ".join(sorted({type(cache).__name__ for cache in own}))
            raise ValueError(
                f"the model has no layer with a plain KVCache (it uses {kinds}). There is "
                "nothing to bound."
            )
        return [make(i) if type(cache) is KVCache else cache for i, cache in enumerate(own)]


def _config_of(layer: int, common: H2OConfig, budgets: Budgets | None) -> H2OConfig:
    if budgets is None:
        return common
    with warnings.catch_warnings():  # small windows are tried on purpose
        warnings.simplefilter("ignore", H2OConfigWarning)
        return budgets.config_of(layer, common)


def _group_size(heads: Sequence[Head]) -> int:
    """64 elements share a scale, or 32 where 64 do not divide the head dims."""
    dims = {dim for head in heads for dim in (head.key_dim, head.value_dim)}
    return 64 if all(dim % 64 == 0 for dim in dims) else 32


def _layers(model: Any) -> dict[int, tuple[Head, ...]]:
    """What a token leaves in each layer with full attention, by the layer's cache."""
    caches = make_prompt_cache(model)
    mx.eval(model(mx.zeros((1, 1), mx.int32), cache=caches))
    found: dict[int, tuple[Head, ...]] = {}
    for index, cache in enumerate(caches):
        if type(cache) is KVCache:
            keys, values = cache.state
            head = Head(keys.shape[3], values.shape[3], keys.itemsize)
            found[index] = (head,) * keys.shape[1]
    return found


def ledger_positions(caches: Sequence[Any]) -> list[mx.array]:
    """Kept positions [B, Hkv, C] of each H2O cache; none of other caches."""
    found = [getattr(cache, "positions", None) for cache in caches]
    return [positions for positions in found if positions is not None]
