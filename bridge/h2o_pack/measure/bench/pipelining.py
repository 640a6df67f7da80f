"""Steps queued one ahead, as mlx_lm generates, before steps evaluated alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import mlx.core as mx

from h2o_pack.measure.allocated import active_memory
from h2o_pack.measure.bench import upstream_write
from h2o_pack.measure.bench.caches import BY_NAME
from h2o_pack.measure.bench.layer import Layer, steady
from h2o_pack.measure.bench.options import Options
from h2o_pack.measure.timing import Burst, Timing, interleave, timed, warm_up
from h2o_pack.results import doc

COUNTED_STEPS = 1000
_UPSTREAM_STEPS = 12


@dataclass(frozen=True)
class Pipelining:
    """A cache's step, alone and queued one ahead, and the memory of 1,000 queued steps."""

    name: Annotated[str, doc("Of the cache.")]
    dtype: str
    alone: Timing
    queued: Timing
    cache_bytes: Annotated[int, doc("Size of the cache.")]
    allocated_bytes: Annotated[
        int, doc("How far memory rose above its level before the steps.")
    ]
    kept_bytes: Annotated[int, doc("By how much memory was higher after the steps.")]


@dataclass(frozen=True)
class UpstreamWrite:
    """Microseconds of `KVCache`'s write at 5,000 rows, alone and queued one ahead."""

    dtype: str
    alone: Timing
    queued: Timing


def measure_pipelining(options: Options, dtype: str, name: str) -> Pipelining:
    """Measure our cache `name`."""
    layer = steady(BY_NAME[name], options, getattr(mx, dtype))
    bursts = {"alone": timed(layer.run), "queued": queued(layer.step)}
    timings = interleave(bursts, options.repetitions)
    cache_bytes, allocated_bytes, kept_bytes = _allocated(layer)
    return Pipelining(
        name=name,
        dtype=dtype,
        alone=timings["alone"],
        queued=timings["queued"],
        cache_bytes=cache_bytes,
        allocated_bytes=allocated_bytes,
        kept_bytes=kept_bytes,
    )


def measure_upstream_write(options: Options, dtype: str) -> UpstreamWrite:
    """Measure mlx-lm's `KVCache` for comparison."""
    before = upstream_write.other_work()
    step = upstream_write.write(options, getattr(mx, dtype), before)
    bursts = {
        "alone": timed(lambda: mx.eval(step())),
        "queued": queued(step),
        "before, alone": timed(lambda: mx.eval(before())),
        "before, queued": queued(before),
    }
    of = interleave(bursts, options.repetitions, steps=_UPSTREAM_STEPS)
    return UpstreamWrite(
        dtype,
        of["alone"].without(of["before, alone"]),
        of["queued"].without(of["before, queued"]),
    )


def queued(step: Callable[[], mx.array]) -> Burst:
    """Return bursts of `step` where each is queued before the previous one is awaited."""

    def burst(steps: int) -> float:
        for _ in range(warm_up(steps)):
            mx.eval(step())
        previous = step()
        mx.async_eval(previous)
        start = time.perf_counter_ns()
        for _ in range(steps):
            out = step()
            mx.async_eval(out)
            mx.eval(previous)
            previous = out
        elapsed = time.perf_counter_ns() - start  # one step is queued, as at the start
        mx.eval(previous)
        return elapsed / 1e3 / steps

    return burst


def _allocated(layer: Layer) -> tuple[int, int, int]:
    """Measure the bytes of the cache, and those that queued steps take and keep."""
    burst = queued(layer.step)
    burst(COUNTED_STEPS // 10)
    before = active_memory()
    mx.reset_peak_memory()
    burst(COUNTED_STEPS)
    kept = active_memory() - before
    return layer.cache.nbytes, mx.get_peak_memory() - before, kept
