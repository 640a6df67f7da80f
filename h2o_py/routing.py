"""Sends the attention of mlx_lm's models through the cache.

Every model module of mlx_lm imports `scaled_dot_product_attention` by name. So
`install_routing` replaces the name in each imported module, and in mlx_lm's base module for
modules that are imported later. In the same way it replaces mlx_lm's loop of generation by one
that cuts prompts as packages do, and speculative decoding by a function that raises an error if
a cache cannot be rewound.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import mlx.core as mx
from mlx_lm.models import base
from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache

import h2o_py.models  # noqa: F401  registers every cache class for load_prompt_cache
from h2o_py.cache import H2OCacheList, H2OKVCache, read_by_another_layer
from h2o_py.errors import H2OStateError
from h2o_py.prompts import read_prompt

_NAME = "scaled_dot_product_attention"
_SPECULATION = "speculative_generate_step"
_upstream: Callable[..., mx.array] = getattr(base, _NAME)
_generate = importlib.import_module("mlx_lm.generate")
_speculate = _generate.speculative_generate_step
_STEP = "generate_step"
_step = _generate.generate_step


def routed_attention(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    cache: Any,
    scale: float,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
) -> mx.array:
    """Compute attention, with the cache's own method if it has one; replaces mlx_lm's function.

    A cache whose `awaited` is a pair of weak references to these keys and values computes the
    attention itself, by its `attend`. A cache with `update_scores` receives the logits, float32
    [B * Hq * L, N]. For every other cache, mlx_lm's own function computes it.

    Args:
        queries: [B, Hq, L, Dk].
        keys: [B, Hkv, N, Dk], the result of the cache's `update_and_fetch`.
        values: [B, Hkv, N, Dv].
        cache: the layer's cache, or None.
        scale: factor of q.k.
        mask: None, "causal" or an array.
        sinks: [Hq], attention sinks.

    Returns:
        [B, Hq, L, Dv].

    """
    awaited = getattr(cache, "awaited", None)
    if awaited is not None and keys is awaited[0]() and values is awaited[1]():
        out: mx.array = cache.attend(queries, scale=scale, mask=mask, sinks=sinks)
        return out
    if hasattr(cache, "update_scores"):
        from h2o_py import fast  # noqa: PLC0415  loads the compiled module

        out, scores = fast.scaled_dot_product_attention_with_scores(
            queries, keys, values, scale=scale, mask=mask, sinks=sinks
        )
        cache.update_scores(scores)
        return out
    if cache is None:
        read_by_another_layer(keys)
    return _upstream(queries, keys, values, cache=cache, scale=scale, mask=mask, sinks=sinks)


def guarded_speculation(
    prompt: Any, model: Any, draft_model: Any, *stream: Any, **options: Any
) -> Generator[Any, None, None]:
    """mlx_lm's `speculative_generate_step`, which stops if a cache cannot be trimmed.

    mlx_lm removes rejected draft tokens by trimming the caches, and ignores a cache that
    cannot be trimmed. The rejected tokens would then stay in the context.

    Raises:
        H2OStateError: a cache has evicted rows, before the first step or later.

    """
    caches = options.get("prompt_cache")
    if caches is None:
        caches = [*make_prompt_cache(model), *make_prompt_cache(draft_model)]
    if not any(isinstance(cache, H2OKVCache | H2OCacheList) for cache in caches):
        yield from _speculate(prompt, model, draft_model, *stream, **options)
        return
    _check_trimmable(caches)
    options["prompt_cache"] = caches
    for step in _speculate(prompt, model, draft_model, *stream, **options):
        _check_trimmable(caches)
        yield step


def generate_in_chunks(
    prompt: Any, model: Any, stream: Any = _generate.generation_stream, **options: Any
) -> Generator[Any, None, None]:
    """mlx_lm's `generate_step`; with H2O caches, the prompt is cut as in a package's sessions.

    The pinned beginning of the prompt is read first. By default, `prefill_step_size` is the
    number of the model's package, or 512 (`h2o_py.prompts`).
    """
    caches = options.get("prompt_cache")
    if caches is None:
        caches = make_prompt_cache(model, options.get("max_kv_size"))
    evicting = [
        member
        for cache in caches
        for member in getattr(cache, "caches", (cache,))
        if isinstance(member, H2OKVCache)
    ]
    if not evicting:
        yield from _step(prompt, model, stream, **options)
        return
    options["prompt_cache"] = caches
    yield from read_prompt(_step, prompt, model, stream, evicting, **options)


def install_routing() -> None:
    """Route the attention of all mlx_lm models, including those that are imported later."""
    _replace(base, _NAME, _upstream, routed_attention)
    _replace(_generate, _SPECULATION, _speculate, guarded_speculation)
    _replace(_generate, _STEP, _step, generate_in_chunks)


def remove_routing() -> None:
    """Undo `install_routing`; does nothing if routing is not installed."""
    _replace(base, _NAME, routed_attention, _upstream)
    _replace(_generate, _SPECULATION, guarded_speculation, _speculate)
    _replace(_generate, _STEP, generate_in_chunks, _step)


def routing_installed() -> bool:
    """Whether routing is installed."""
    return getattr(base, _NAME) is routed_attention


@contextmanager
def routed() -> Iterator[None]:
    """Route attention within a `with` block, and then restore the earlier state."""
    was_installed = routing_installed()
    install_routing()
    try:
        yield
    finally:
        if not was_installed:
            remove_routing()


def _check_trimmable(caches: Sequence[Any]) -> None:
    if not can_trim_prompt_cache(list(caches)):
        raise H2OStateError("speculation")


def _replace(home: ModuleType, name: str, old: Any, new: Any) -> None:
    """Bind `name` to `new` in `home` and in every module where it is bound to `old`."""
    setattr(home, name, new)
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType) and vars(module).get(name) is old:
            setattr(module, name, new)
