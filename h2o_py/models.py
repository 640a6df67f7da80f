"""Caches for a whole model, one a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlx_lm.models.cache import KVCache, make_prompt_cache

from h2o_py.cache import H2OKVCache
from h2o_py.config import H2OConfig

_ORIGINAL = "_make_cache_before_h2o"


def make_h2o_cache(model: Any, config: H2OConfig) -> list[Any]:
    """One cache a layer: H2O where the model would use a plain `KVCache`.

    Layers with a cache of another kind (sliding window, recurrent) keep it.

    Args:
        model: a model of mlx_lm.
        config: the policy of every full-attention layer.

    Raises:
        ValueError: no layer of the model uses a plain `KVCache`.

    """
    caches = _own_caches(model)
    replaced = [H2OKVCache(config) if type(own) is KVCache else own for own in caches]
    if not any(isinstance(cache, H2OKVCache) for cache in replaced):
        kinds = ", ".join(sorted({type(own).__name__ for own in caches})) or "no caches"
        raise ValueError(
            f"{type(model).__module__} has no layer with a plain KVCache (it uses {kinds}), "
            "so there is nothing for H2O to bound."
        )
    return replaced


def attach_h2o_cache(model: Any, config: H2OConfig) -> None:
    """Make `model.make_cache` return H2O caches, so that all of mlx_lm uses them.

    `generate`, the server and prompt caching ask the model for its caches. Routing is
    installed separately (`install_routing`). `detach_h2o_cache` undoes it.
    """
    make_h2o_cache(model, config)  # an unfit model is refused here, not at first use
    detach_h2o_cache(model)
    model.__dict__[_ORIGINAL] = model.__dict__.get("make_cache")
    model.make_cache = lambda: make_h2o_cache(model, config)


def detach_h2o_cache(model: Any) -> None:
    """Give the model its own caches back. Does nothing where none were attached."""
    if _ORIGINAL not in model.__dict__:
        return
    original = model.__dict__.pop(_ORIGINAL)
    if original is None:
        del model.make_cache
    else:
        model.make_cache = original


def _own_caches(model: Any) -> list[Any]:
    """What the model would use without H2O attached."""
    if _ORIGINAL not in model.__dict__:
        return list(make_prompt_cache(model))
    original: Callable[[], list[Any]] | None = model.__dict__[_ORIGINAL]
    if original is not None:
        return list(original())
    on_class = getattr(type(model), "make_cache", None)
    if on_class is not None:
        return list(on_class(model))
    return [KVCache() for _ in model.layers]
