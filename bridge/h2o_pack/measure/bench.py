"""Speed and memory of a model with H2O caches and with mlx-lm's own: `h2o-pack bench`.

All caches generate in one process. In each repetition every cache runs one burst of tokens, in
an order that changes, so that other load on the machine affects all of them equally.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.utils as mlx_utils
from mlx_lm.models.cache import KVCache, QuantizedKVCache, RotatingKVCache, make_prompt_cache
from rich.console import Console

from h2o_pack.measure import models
from h2o_pack.measure.bench_result import BenchResult, CacheSpeed, NotMeasured
from h2o_pack.measure.held import active_memory, largest_footprint
from h2o_pack.measure.machine import describe, scoring_kernels
from h2o_pack.measure.tables import Table, print_table
from h2o_pack.measure.timing import interleave
from h2o_pack.printing import caption
from h2o_pack.progress import ProgressReporter
from h2o_py.cache import H2OKVCache
from h2o_py.config import H2OConfig, H2ORecall, without_warnings
from h2o_py.models import STORAGES
from h2o_py.routing import routed

SINKS = 4
GROUP_SIZE = 64
PREFILL_CHUNK = 256
REPETITIONS, QUICK_REPETITIONS = 40, 9
QUICK_TOKENS = 64
SENTENCE = "A cache keeps what attention looks at, and lets go of what nobody asks for. "


@dataclass(frozen=True)
class MeasuredCache:
    """A kind of cache that `bench` measures.

    make: returns the cache of one layer, from its capacity C in rows and the group size of
    quantized rows.
    """

    name: str
    title: str
    make: Callable[[int, int], Any]


def h2o_cache(storage: str, recall: H2ORecall | None = None) -> Callable[[int, int], Any]:
    """Return a function that makes h2o_py's cache of a storage, with the default policy."""

    def make(capacity: int, group: int) -> H2OKVCache:
        with without_warnings():  # few rows are a user's choice
            return STORAGES[storage](H2OConfig(capacity, recall=recall), group)

    return make


def every_token(storage: str) -> Callable[[int, int], Any]:
    """Return a function that makes h2o_py's cache that keeps every token in a storage."""
    return lambda _capacity, group: STORAGES[storage](H2OConfig.unbounded(), group)


CACHES = (
    MeasuredCache("kv", "mlx-lm KVCache", lambda _c, _g: KVCache()),
    MeasuredCache(
        "rotating", "mlx-lm RotatingKVCache", lambda c, _g: RotatingKVCache(c, SINKS)
    ),
    MeasuredCache(
        "kv-8bit",
        "mlx-lm QuantizedKVCache 8-bit",
        lambda _c, g: QuantizedKVCache(g, 8),
    ),
    *(
        MeasuredCache(kv, f"H2O, kv {kv}", h2o_cache(kv))
        for kv in ("16", "8", "k8v4", "4", "heavy=8,recent=16")
    ),
)
EVERY_TOKEN = tuple(
    MeasuredCache(f"full/{kv}", f"every token, kv {kv}", every_token(kv))
    for kv in ("8", "k8v4", "4")
)
"""Caches of h2o_py that keep every token."""
RECALLING = (MeasuredCache("16+recall", "H2O, kv 16, recall", h2o_cache("16", H2ORecall())),)
"""Caches with an archive in memory."""


def bench(
    model: str,
    max_kv: int,
    tokens: int,
    *,
    prompt: int | None = None,
    quick: bool,
    say: ProgressReporter,
) -> BenchResult:
    """Load a model and measure it with every cache.

    model: a name that `models.load` accepts. max_kv: rows per KV head. tokens: how many tokens
    to generate with each cache. prompt: tokens of the prompt; None for a quarter more than
    `max_kv`. quick: fewer tokens and repetitions.

    Raises UserError: the model cannot be loaded.
    """
    say(f"loading {model}")
    mlx_model, tokenizer = models.load(model)
    say("generating with each cache in turn")
    repetitions = QUICK_REPETITIONS if quick else REPETITIONS
    count = min(tokens, QUICK_TOKENS) if quick else tokens
    name = model.rstrip("/").rsplit("/", 1)[-1]
    ids = repeated_prompt(tokenizer, prompt or max_kv + max_kv // 4)
    caches = (*CACHES, *EVERY_TOKEN, *RECALLING)
    return measure(caches, mlx_model, ids, max_kv, count, repetitions, name)


def measure(
    caches: Sequence[MeasuredCache],
    model: Any,
    prompt: mx.array,
    max_kv: int,
    tokens: int,
    repetitions: int,
    name: str,
) -> BenchResult:
    """Generate with each cache in turn, one burst of tokens per repetition.

    prompt: [tokens]. max_kv: rows per KV head. tokens: how many to generate with each
    cache. name: the model's name in the result.
    """
    mx.eval(model.parameters())  # so that no cache's peak has the loading of weights
    bursts: dict[str, Generation] = {}
    refused: list[NotMeasured] = []
    with routed():
        for kind in caches:
            own = [  # only a layer's plain KVCache is replaced
                kind.make(max_kv, GROUP_SIZE) if type(cache) is KVCache else cache
                for cache in make_prompt_cache(model)
            ]
            try:
                bursts[kind.name] = Generation(model, prompt, own)
            except ValueError as error:
                refused.append(NotMeasured(kind.name, prompt.size, str(error)))
        steps = max(1, tokens // min(repetitions, tokens))
        timings = interleave(bursts, tokens // steps, steps=steps)
    full = timings.get("kv")
    speeds = [
        CacheSpeed(
            name=kind.name,
            title=kind.title,
            prompt_tokens=prompt.size,
            tokens_per_second=1e6 / timing.median,
            prompt_tokens_per_second=bursts[kind.name].prompt_tokens_per_second,
            microseconds=timing.median,
            first_quartile=timing.first_quartile,
            third_quartile=timing.third_quartile,
            bytes=bursts[kind.name].bytes,
            peak_bytes=bursts[kind.name].peak_bytes,
            speed=full.over(timing) if full else None,
        )
        for kind in caches
        if (timing := timings.get(kind.name))
    ]
    return BenchResult(
        machine=describe(),
        model=name,
        dtype=dtype_of(model),
        layers=len(model.layers),
        max_kv=max_kv,
        prefill_step=PREFILL_CHUNK,
        tokens=tokens,
        weights_bytes=sum(weight.nbytes for weight in weights(model).values()),
        footprint_bytes=largest_footprint(),
        kernels=scoring_kernels(),
        caches=tuple(speeds),
        not_measured=tuple(refused),
    )


class Generation:
    """Generates bursts of tokens with mlx_lm's own loop.

    Raises ValueError: the model cannot use the caches.
    """

    def __init__(self, model: Any, prompt: mx.array, caches: list[Any]) -> None:
        self._upstream = importlib.import_module("mlx_lm.generate")
        self.caches = caches
        before = active_memory()
        mx.reset_peak_memory()
        start = time.perf_counter()
        self._tokens: Generator[Any] = self._upstream.generate_step(
            prompt, model, max_tokens=-1, prompt_cache=caches, prefill_step_size=PREFILL_CHUNK
        )
        next(self._tokens)
        self.prompt_tokens_per_second = prompt.size / (time.perf_counter() - start)
        self.peak_bytes = max(0, mx.get_peak_memory() - before)

    @property
    def bytes(self) -> int:
        """Bytes of the caches of all layers, with their archives."""
        return sum(int(cache.nbytes) for cache in self.caches)

    def __call__(self, steps: int) -> float:
        """Generate tokens; return the microseconds per token."""
        mx.synchronize(self._upstream.generation_stream)
        start = time.perf_counter_ns()
        for _ in range(steps):
            next(self._tokens)
        mx.synchronize(self._upstream.generation_stream)
        return (time.perf_counter_ns() - start) / 1e3 / steps


def repeated_prompt(tokenizer: Any, tokens: int) -> mx.array:
    """Repeat a sentence until it has a number of tokens; returns [tokens]."""
    once = tokenizer.encode(SENTENCE)
    return mx.array((once * (tokens // len(once) + 1))[:tokens])


def weights(model: Any) -> dict[str, mx.array]:
    """Return the model's weights by their names."""
    return dict(mlx_utils.tree_flatten(model.parameters()))


def dtype_of(model: Any) -> str:
    """Return the dtype of keys and values.

    The weights of the first norm have this dtype; other weights may be quantized.
    """
    norms = [array for name, array in weights(model).items() if name.endswith("norm.weight")]
    return str(norms[0].dtype).removeprefix("mlx.core.") if norms else "unknown"


def speed_table(result: BenchResult) -> Table:
    """Return the caches as a table."""
    rows = tuple(
        (
            cache.title,
            f"{cache.tokens_per_second:,.1f}",
            f"{cache.first_quartile / 1e3:.3g}..{cache.third_quartile / 1e3:.3g}",
            optional(cache.speed, ".2f"),
            optional(cache.prompt_tokens_per_second, ",.0f"),
            f"{cache.bytes / 1e6:,.2f}",
        )
        for cache in result.caches
    )
    note = (
        "KVCache, QuantizedKVCache and caches of every token grow. x: tokens per s, divided by "
        "those with KVCache. prompt: tokens of the prompt per s."
    )
    refused = "".join(
        f" {cache.name} cannot be used: {cache.reason}." for cache in result.not_measured
    )
    prompt = result.caches[0].prompt_tokens if result.caches else 0
    return Table(
        f"{result.model}, {result.layers} layers, {result.dtype}: {result.tokens} tokens after "
        f"a prompt of {prompt}, max_kv {result.max_kv}",
        ("cache", "tokens per s", "ms per token", "x", "prompt", "MB"),
        rows,
        note + refused,
    )


def optional(number: float | None, form: str) -> str:
    """Format a number; "-" for None."""
    return "-" if number is None else format(number, form)


def print_bench(result: BenchResult, console: Console) -> None:
    """Show the table and the machine."""
    print_table(speed_table(result), console)
    caption(str(result.machine), console, "")
