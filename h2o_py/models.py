"""Caches for a whole model, one per layer."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import CacheList, KVCache, make_prompt_cache

from h2o_py.budgets import Budgets
from h2o_py.cache import H2OCacheList, H2OKVCache, MixedH2OKVCache, QuantizedH2OKVCache
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.errors import (
    H2OBudgetsError,
    H2OConfigError,
    H2OModelError,
    H2OScoresMissingWarning,
)
from h2o_py.families import shares_one_mask, why_unfit, why_without_scores
from h2o_py.storages import (
    GROUP_SIZES,
    KV_NAMES,
    STORAGE_BITS,
    StorageBits,
    group_size_of,
    storage_name,
)


def _cache_maker(bits: StorageBits) -> Callable[[H2OConfig, int], H2OKVCache]:
    """Return a function that makes a cache from a configuration and a group size."""
    if bits.is_dense:
        return lambda config, _: H2OKVCache(config)
    if bits.recent is None:
        return lambda config, group_size: QuantizedH2OKVCache(
            config,
            group_size=group_size,
            key_bits=bits.key,
            value_bits=bits.value,
            rotated=bits.rotated,
        )
    recent = bits.recent
    return lambda config, group_size: MixedH2OKVCache(config, bits.key, recent, group_size)


STORAGES: dict[str, Callable[[H2OConfig, int], H2OKVCache]] = {
    name: _cache_maker(bits) for name, bits in STORAGE_BITS.items()
}
"""Functions that make a cache from a configuration and a group size, by storage name."""

_ORIGINAL = "_make_cache_before_h2o"


def make_h2o_cache(
    model: Any,
    config: H2OConfig | None = None,
    *,
    kv: str = "16",
    group_size: int | None = None,
    budgets: Budgets | None = None,
) -> list[Any]:
    """Make one cache per layer: an H2O cache if the model would use a plain `KVCache`.

    Caches that keep every token as the model computes it are the model's own.
    Layers with a cache of another kind (sliding window, recurrent) keep it. In a layer with
    several caches, only the plain one is replaced.

    Args:
        model: a model of mlx_lm.
        config: the policy of every full-attention layer; None keeps every token.
        kv: how rows are stored, a name in `h2o_py.storages.KV_NAMES`.
        group_size: elements of quantized rows that share a scale and a bias; divides the head
            dims. None takes the first of 64 and 32 that divides all, as packages do.
        budgets: budgets that differ from layer to layer.

    Raises:
        H2OModelError: the model cannot work with an evicting cache or with recall, or no
            layer uses a plain `KVCache`.
        H2OConfigError: `kv` is unknown, or a layer's budgets do not fit.
        H2OBudgetsError: the budgets were made for another model.

    """
    name, config = storage_name(kv), config or H2OConfig.unbounded()
    if name not in STORAGES:
        raise H2OConfigError.unknown_choice("kv", kv, KV_NAMES)
    make, bits = STORAGES[name], STORAGE_BITS[name]
    if not config.evicts:
        if bits.is_dense:
            return _own_caches(model)
        if bits.recent is not None:
            raise H2OConfigError("recent_without_bound", kv=name)
    family = type(model).__module__.rpartition(".")[2]
    reason = why_unfit(model)
    if reason is not None:
        raise H2OModelError("unfit_model", family=family, reason=reason)
    own = _own_caches(model)
    evicting = [_holds_plain(cache) for cache in own]
    if not any(evicting):
        kinds = ", ".join(sorted({type(cache).__name__ for cache in own})) or "no caches"
        raise H2OModelError("no_plain_cache", family=family, kinds=kinds)
    if group_size is None:
        group_size = GROUP_SIZES[0] if bits.is_dense else _group_size(model)
    if budgets is not None:
        budgets.check_layers(evicting, family)
        if shares_one_mask(model) and budgets.sizes(config.max_size) != {config.max_size}:
            raise H2OBudgetsError("one_mask", where=budgets.source, family=family)
    without_scores = why_without_scores(model)
    if config.recall is not None:
        _check_recall(config.recall, evicting, family, without_scores)
    if without_scores is not None and config.evicts:
        warnings.warn(
            H2OScoresMissingWarning("no_scores", family=family, reason=without_scores),
            stacklevel=2,
        )

    def evicting_cache(layer: int) -> H2OKVCache:
        settings = config if budgets is None else budgets.config_of(layer, config)
        cache = make(settings.of_layer(layer), group_size)
        cache.expects_queries = without_scores is None
        return cache

    return [_replaced(cache, partial(evicting_cache, layer)) for layer, cache in enumerate(own)]


def attach_h2o_cache(model: Any, config: H2OConfig | None = None, **options: Any) -> None:
    """Make `model.make_cache` return H2O caches, so that all of mlx_lm uses them.

    `generate`, the server and prompt caching ask the model for its caches. Routing is
    installed separately (`install_routing`). `detach_h2o_cache` undoes the
    attachment.

    Args:
        model: a model of mlx_lm.
        config: the policy; None keeps every token.
        options: as for `make_h2o_cache`.

    """
    make_h2o_cache(model, config, **options)  # raises an error now and not at the first request
    detach_h2o_cache(model)
    model.__dict__[_ORIGINAL] = model.__dict__.get("make_cache")
    model.make_cache = lambda: make_h2o_cache(model, config, **options)


def detach_h2o_cache(model: Any) -> None:
    """Undo `attach_h2o_cache`. Does nothing to a model without it."""
    if _ORIGINAL not in model.__dict__:
        return
    original = model.__dict__.pop(_ORIGINAL)
    if original is None:
        del model.make_cache
    else:
        model.make_cache = original


def _group_size(model: Any) -> int:
    """Return the group size for a model's heads, whose dims its own caches show.

    MLX computes nothing of this step, because nobody reads its results.
    """
    caches = _own_caches(model)
    model(mx.array([[0]]), cache=caches)
    members = [m for c in caches for m in (c.caches if isinstance(c, CacheList) else (c,))]
    plain = [cache for cache in members if type(cache) is KVCache]
    arrays = [array for cache in plain for array in (cache.keys, cache.values)]
    dims = {array.shape[-1] for array in arrays if array is not None}
    return group_size_of(dims) or min(GROUP_SIZES)


def _own_caches(model: Any) -> list[Any]:
    """Return the caches that the model makes without H2O."""
    if _ORIGINAL not in model.__dict__:
        return list(make_prompt_cache(model))
    original: Callable[[], list[Any]] | None = model.__dict__[_ORIGINAL]
    if original is not None:
        return list(original())
    on_class = getattr(type(model), "make_cache", None)
    if on_class is not None:
        return list(on_class(model))
    return [KVCache() for _ in model.layers]


def _holds_plain(cache: Any) -> bool:
    if isinstance(cache, CacheList):
        return any(_holds_plain(member) for member in cache.caches)
    return type(cache) is KVCache


def _replaced(cache: Any, make: Callable[[], H2OKVCache]) -> Any:
    """Replace a plain cache, or each plain member of a list, by one that `make` returns.

    This is not a closure in `make_h2o_cache`, because a closure that calls itself is a
    reference cycle, which would keep unused caches alive until a garbage collection.
    """
    if isinstance(cache, CacheList) and _holds_plain(cache):
        members = [_replaced(member, make) for member in cache.caches]
        return H2OCacheList(*members)  # type: ignore[no-untyped-call]
    return make() if type(cache) is KVCache else cache


def _check_recall(
    recall: H2ORecall, evicting: list[bool], family: str, without_scores: str | None
) -> None:
    """Refuse recall without queries, or in a layer that evicts nothing."""
    if without_scores is not None:
        raise H2OModelError("recall_needs_scores", family=family, reason=without_scores)
    layers = [layer for layer, evicts in enumerate(evicting) if evicts]
    for layer in recall.layers or ():
        if layer not in layers:
            names = ", ".join(map(str, layers))
            raise H2OModelError(
                "recall_layers",
                setting="recall.layers",
                layer=layer,
                known=names,
                family=family,
            )
