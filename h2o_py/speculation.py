"""Speculative decoding with H2O caches: right until the first eviction, refused after it."""

from __future__ import annotations

import importlib
from collections.abc import Generator, Sequence
from typing import Any

from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache

from h2o_py.cache import H2OKVCache
from h2o_py.cache_list import H2OCacheList
from h2o_py.errors import H2OStateError

upstream = importlib.import_module("mlx_lm.generate").speculative_generate_step


def guarded(
    prompt: Any, model: Any, draft_model: Any, *stream: Any, **options: Any
) -> Generator[Any, None, None]:
    """mlx_lm's `speculative_generate_step`, which would go on when a rewind is not possible.

    It takes rejected draft tokens back by trimming the caches, and does nothing where a
    cache cannot be trimmed: the rejected tokens would stay in the context.

    Raises:
        H2OStateError: a cache has evicted rows (before it starts or on its way).

    """
    caches = options.get("prompt_cache")
    if caches is None:
        caches = [*make_prompt_cache(model), *make_prompt_cache(draft_model)]
    if not any(isinstance(cache, H2OKVCache | H2OCacheList) for cache in caches):
        yield from upstream(prompt, model, draft_model, *stream, **options)
        return
    _check_trimmable(caches)
    options["prompt_cache"] = caches
    for step in upstream(prompt, model, draft_model, *stream, **options):
        _check_trimmable(caches)
        yield step


def _check_trimmable(caches: Sequence[Any]) -> None:
    if not can_trim_prompt_cache(list(caches)):
        raise H2OStateError("speculation")
