"""Tokens per second, and the most memory that MLX held meanwhile."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

_WARM_UP = 4


def measure(
    model: Any, caches: Callable[[], list[Any]], prompt: Sequence[int], tokens: int, runs: int
) -> dict[str, list[float]]:
    """Generate greedily by mlx_lm's own loop, which queues one step ahead.

    Args:
        model: of mlx_lm, routed.
        caches: makes new ones for a run.
        prompt: token ids.
        tokens: to generate while the time is taken.
        runs: how often; one more comes first and does not count.

    Returns:
        Of each run: tokens per second after the prompt, and peak bytes, weights included.

    """
    rates: list[float] = []
    peaks: list[float] = []
    for run in range(runs + 1):
        mx.clear_cache()
        mx.reset_peak_memory()
        rate = _rate(model, caches(), prompt, tokens if run else _WARM_UP)
        if run:
            rates.append(rate)
            peaks.append(mx.get_peak_memory())
    return {"tokens_per_second": rates, "peak_bytes": peaks}


def _rate(model: Any, caches: list[Any], prompt: Sequence[int], tokens: int) -> float:
    upstream = importlib.import_module("mlx_lm.generate")
    steps = upstream.generate_step(
        mx.array(list(prompt)), model, max_tokens=-1, prompt_cache=caches
    )
    next(steps)
    start = time.perf_counter()
    for _ in range(tokens):
        next(steps)
    rate = tokens / (time.perf_counter() - start)
    steps.close()
    return rate
