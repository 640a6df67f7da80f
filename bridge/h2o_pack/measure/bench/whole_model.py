"""Tokens a second of a whole model with every contender."""

from __future__ import annotations

import importlib
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from typing import Any

import mlx.core as mx
import mlx.utils as mlx_utils
import mlx_lm
from mlx_lm.models.cache import KVCache, make_prompt_cache

from h2o_pack.measure.bench.contenders import Contender
from h2o_pack.measure.bench.options import Options
from h2o_pack.measure.bench.timing import Burst, Timing, interleave
from h2o_py.routing import install_routing, remove_routing, routing_installed

_GROUP_SIZE = 64
_CHUNK = 256
_TEXT = "A cache keeps what attention looks at, and lets go of what nobody asks for. "

EMBEDDED = ("demo", "demo-4bit")


@dataclass(frozen=True)
class WholeModel:
    """Microseconds a token by contender's name; not_run says why others are missing.

    prompt_tokens is more than `capacity`, so that bounded caches evict from the first
    generated token on; unbounded ones keep everything.
    """

    name: str
    dtype: str
    layers: int
    capacity: int
    prompt_tokens: int
    tokens: int
    timings: dict[str, Timing]
    not_run: dict[str, str]


def load(name: str) -> tuple[Any, Any]:
    """A model and its tokenizer; "demo" and "demo-4bit" are the embedded ones.

    Raises:
        ValueError: mlx_lm cannot load it.

    """
    path = str(resources.files("h2o_pack.models") / name) if name in EMBEDDED else name
    try:
        loaded: Any = mlx_lm.load(path)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"model = {name!r} could not be loaded ({error}). Give a folder or an id on "
            "huggingface.co of a model for mlx_lm."
        ) from error
    model, tokenizer = loaded
    return model, tokenizer


def measure_model(
    contenders: tuple[Contender, ...], options: Options, model: Any, tokenizer: Any
) -> WholeModel:
    """Generate with each contender in turn, a burst of tokens a repetition."""
    prompt = _prompt(tokenizer, options.capacity + options.capacity // 4)
    bursts: dict[str, Burst] = {}
    not_run: dict[str, str] = {}
    with _routed():
        for contender in contenders:
            try:
                bursts[contender.name] = _generating(contender, options, model, prompt)
            except ValueError as error:  # noqa: PERF203  a handful of them
                not_run[contender.name] = str(error)
        steps = max(1, options.timed_tokens // min(options.repetitions, options.timed_tokens))
        timings = interleave(bursts, options.timed_tokens // steps, steps=steps)
    return WholeModel(
        name=options.model if options.model == "demo" else options.model.rsplit("/", 1)[-1],
        dtype=_dtype(model),
        layers=len(model.layers),
        capacity=options.capacity,
        prompt_tokens=len(prompt),
        tokens=options.timed_tokens,
        timings=timings,
        not_run=not_run,
    )


def _generating(contender: Contender, options: Options, model: Any, prompt: mx.array) -> Burst:
    """Bursts of tokens by mlx_lm's own loop, which queues one step ahead."""
    upstream = importlib.import_module("mlx_lm.generate")
    caches = [
        contender.make(options.capacity, _GROUP_SIZE) if type(own) is KVCache else own
        for own in make_prompt_cache(model)
    ]
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


def _prompt(tokenizer: Any, tokens: int) -> mx.array:
    """Ids of a sentence over and over, `tokens` of them."""
    once = tokenizer.encode(_TEXT)
    return mx.array((once * (tokens // len(once) + 1))[:tokens])


def _dtype(model: Any) -> str:
    """The dtype that keys and values will have: of the first norm, as weights may be packed."""
    parameters = dict(mlx_utils.tree_flatten(model.parameters()))
    norms = [array for name, array in parameters.items() if name.endswith("norm.weight")]
    return str(norms[0].dtype).removeprefix("mlx.core.") if norms else "unknown"


@contextmanager
def _routed() -> Iterator[None]:
    was_installed = routing_installed()
    install_routing()
    try:
        yield
    finally:
        if not was_installed:
            remove_routing()
