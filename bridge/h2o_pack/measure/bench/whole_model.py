"""Tokens per second of a whole model with every kind."""

from __future__ import annotations

import importlib
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import mlx.core as mx
import mlx.utils as mlx_utils
from mlx_lm.models.cache import KVCache, make_prompt_cache

from h2o_pack.measure.bench.caches import MeasuredCache
from h2o_pack.measure.bench.options import Options
from h2o_pack.measure.timing import Burst, Timing, interleave
from h2o_pack.results import doc
from h2o_py.routing import routed

_GROUP_SIZE = 64
_CHUNK = 256
_TEXT = "A cache keeps what attention looks at, and lets go of what nobody asks for. "


@dataclass(frozen=True)
class TokenTiming(Timing):
    """Microseconds per token."""

    tokens_per_second: Annotated[float, doc("Of the median.")]


@dataclass(frozen=True)
class WholeModel:
    """Microseconds per token by cache; not_run says why others are missing.

    prompt_tokens is more than `capacity`, so that bounded caches evict from the first
    generated token on; unbounded ones keep everything.
    """

    name: str
    dtype: str
    layers: int
    capacity: int
    prompt_tokens: int
    tokens: int
    timings: dict[str, TokenTiming]
    not_run: dict[str, str]


def measure_model(
    caches: tuple[MeasuredCache, ...], options: Options, model: Any, tokenizer: Any
) -> WholeModel:
    """Generate with each cache in turn, one burst of tokens per repetition."""
    prompt = repeated_prompt(tokenizer, options.capacity + options.capacity // 4)
    bursts: dict[str, Burst] = {}
    not_run: dict[str, str] = {}
    with routed():
        for kind in caches:
            try:
                bursts[kind.name] = _generating(kind, options, model, prompt)
            except ValueError as error:  # noqa: PERF203  a handful of them
                not_run[kind.name] = str(error)
        steps = max(1, options.timed_tokens // min(options.repetitions, options.timed_tokens))
        timings = interleave(bursts, options.timed_tokens // steps, steps=steps)
    return WholeModel(
        name=options.model if options.model == "demo" else options.model.rsplit("/", 1)[-1],
        dtype=_dtype(model),
        layers=len(model.layers),
        capacity=options.capacity,
        prompt_tokens=len(prompt),
        tokens=options.timed_tokens,
        timings={name: _per_token(timing) for name, timing in timings.items()},
        not_run=not_run,
    )


def _per_token(timing: Timing) -> TokenTiming:
    return TokenTiming.of(timing.values, tokens_per_second=1e6 / timing.median)


def caches_of(kind: MeasuredCache, capacity: int, own: Iterable[Any]) -> list[Any]:
    """Return caches of a kind where the model's own are plain ones, and those elsewhere."""
    return [kind.make(capacity, _GROUP_SIZE) if type(each) is KVCache else each for each in own]


def _generating(kind: MeasuredCache, options: Options, model: Any, prompt: mx.array) -> Burst:
    """Return bursts of tokens by mlx_lm's own loop, which queues one step ahead."""
    upstream = importlib.import_module("mlx_lm.generate")
    caches = caches_of(kind, options.capacity, make_prompt_cache(model))
    tokens: Generator[Any] = upstream.generate_step(
        prompt, model, max_tokens=-1, prompt_cache=caches, prefill_step_size=_CHUNK
    )
    next(tokens)

    def burst(steps: int) -> float:
        mx.synchronize(upstream.generation_stream)
        start = time.perf_counter_ns()
        for _ in range(steps):
            next(tokens)
        mx.synchronize(upstream.generation_stream)
        return (time.perf_counter_ns() - start) / 1e3 / steps

    return burst


def repeated_prompt(tokenizer: Any, tokens: int) -> mx.array:
    """Return `tokens` ids of a sentence that is repeated."""
    once = tokenizer.encode(_TEXT)
    return mx.array((once * (tokens // len(once) + 1))[:tokens])


def _dtype(model: Any) -> str:
    """Return the dtype of keys and values: that of the first norm, as weights may be packed."""
    parameters = dict(mlx_utils.tree_flatten(model.parameters()))
    norms = [array for name, array in parameters.items() if name.endswith("norm.weight")]
    return str(norms[0].dtype).removeprefix("mlx.core.") if norms else "unknown"
