"""Measures decode steps of one layer: alone, evicting, queued ahead, and by number of rows."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import mlx.core as mx
import numpy as np

from h2o_pack.measure.bench import CACHES, GROUP_SIZE
from h2o_pack.measure.held import active_memory
from h2o_pack.measure.tables import Table
from h2o_pack.measure.timing import Burst, Timing, interleave, timed, warm_up
from tools.bench.caches import BY_NAME, Layer, Options, steady
from tools.bench.goals import Claim, Section

DENSE_OVER_ROTATING = {"float16": 10.0, "bfloat16": 8.0, "float32": 4.0}
LOW_PRECISION = ("float16", "bfloat16")


def timing_cells(timing: Timing) -> tuple[str, str]:
    """Return a median and its quartiles, in microseconds."""
    return (
        f"{timing.median:,.1f}",
        f"{timing.first_quartile:,.1f} .. {timing.third_quartile:,.1f}",
    )


def decode_steps(options: Options, dtype: str, peak: float) -> Section:
    """Measure a step of each cache with C rows; caches with a bound evict at each step.

    peak: multiply-adds per second of one core.
    """
    bursts = {}
    for kind in CACHES:
        layer = steady(kind, options, getattr(mx, dtype))
        bursts[kind.name] = timed(layer.run)
        if kind.name == "16":
            bursts["confined"] = on_one_core(timed(layer.run))
    times = interleave(bursts, options.repetitions)
    confined, dense = times.pop("confined"), times["16"]
    multiply_adds = options.heads * options.capacity * 2 * options.head_dim
    share = multiply_adds / (confined.median * 1e-6) / peak
    ratio, goal = times["rotating"].over(dense), DENSE_OVER_ROTATING[dtype]
    claims = [
        Claim("RotatingKVCache and SDPA / 16-bit step", dtype, ratio, "at least", goal),
        Claim(
            "16-bit step's share of the core's multiply-adds", dtype, share, "at least", 0.25
        ),
    ]
    if dtype in LOW_PRECISION:
        packed, upstream = times["8"], times["kv-8bit"]
        least = 20.0 if dtype == "bfloat16" else None
        ratio = upstream.over(packed)
        claims += [
            Claim("8-bit / 16-bit step", dtype, packed.over(dense), "at most", 1.5),
            Claim("QuantizedKVCache / 8-bit step", dtype, ratio, "at least", least),
        ]
    rows = tuple(
        (BY_NAME[name].title, *timing_cells(timing), f"{timing.over(dense):.2f}")
        for name, timing in times.items()
    )
    shape = f"{options.heads} query heads, {options.kv_heads} KV heads of {options.head_dim}"
    title = f"Decode step of one layer in {dtype}: {shape}, {options.capacity} rows"
    header = ("cache", "us per step", "quartiles", "x 16 bits")
    return Section(Table(title, header, rows), tuple(claims))


_THREADS = Path("/proc/self/task")


def on_one_core(burst: Burst) -> Burst:
    """Return the burst with all threads of the process on one core, if the system allows it.

    MLX evaluates on its own thread. Waking this thread on another core takes tens of
    microseconds per step, a time that belongs neither to arithmetic nor to memory. On one core
    the switch is short, and nothing runs in parallel.
    """

    def confined(steps: int) -> float:
        with one_core():
            return burst(steps)

    return confined


@contextmanager
def one_core() -> Iterator[None]:
    """Keep every thread on the first core that the process may use (Linux only)."""
    if not hasattr(os, "sched_setaffinity") or not _THREADS.is_dir():
        yield
        return
    threads = [int(thread.name) for thread in _THREADS.iterdir()]
    allowed = os.sched_getaffinity(0)
    _allow(threads, {min(allowed)})
    try:
        yield
    finally:
        _allow(threads, allowed)


def _allow(threads: list[int], cores: set[int]) -> None:
    for thread in threads:
        with suppress(ProcessLookupError):  # the process has ended
            os.sched_setaffinity(thread, cores)


STEPS = 32
"""Steps per burst; during it, a cache that does not evict grows by as many rows."""


def eviction(options: Options, dtype: str) -> Section:
    """Measure steps of the 16-bit H2O cache that evict, and steps that do not."""
    full = steady(BY_NAME["16"], options, getattr(mx, dtype))
    growing = _growing(options, getattr(mx, dtype))
    bursts: dict[str, Burst] = {"evicting": timed(full.run), "plain": growing}
    times = interleave(bursts, options.repetitions, steps=STEPS)
    evicting, plain = times["evicting"], times["plain"]
    extra = timing_cells(evicting.without(plain))
    medians = f"{evicting.median:,.1f}", f"{plain.median:,.1f}"
    ratio = evicting.over(plain)
    title = f"A step with {options.capacity} rows that evicts one and one that evicts none, us"
    header = ("cache", "dtype", "evicts one", "evicts none", "extra", "quartiles")
    table = Table(title, header, ((BY_NAME["16"].title, dtype, *medians, *extra),))
    name = "16-bit step, evicting / not evicting"
    return Section(table, (Claim(name, dtype, ratio, "at most", 1.05),))


def _growing(options: Options, dtype: mx.Dtype) -> Burst:
    """Return bursts whose steps have `capacity` rows on average and evict none.

    The cache has room for the rows of a burst. Removing them before the next burst is not
    timed.
    """
    most = options.capacity + STEPS // 2
    cache = BY_NAME["16"].make(most, GROUP_SIZE)
    layer = Layer(cache, dataclasses.replace(options, capacity=most), dtype)
    layer.fill(most)
    burst = timed(layer.run)

    def run(steps: int) -> float:
        cache.trim(warm_up(steps) + steps)
        return burst(steps)

    return run


COUNTED_STEPS = 1000


def pipelining(options: Options, dtype: str, name: str) -> Section:
    """Measure an H2O cache with each step queued before the previous one has finished."""
    layer = steady(BY_NAME[name], options, getattr(mx, dtype))
    bursts = {"alone": timed(layer.run), "queued": queued(layer.step)}
    times = interleave(bursts, options.repetitions)
    allocated, held = allocated_bytes(layer)
    size = layer.cache.nbytes
    ratio = times["queued"].over(times["alone"])
    memory = f"{name}-bit: memory allocated in {COUNTED_STEPS:,} steps / size of the cache"
    claims = (
        Claim(f"{name}-bit step queued one ahead / alone", dtype, ratio, "at most", 1.1),
        Claim(memory, dtype, max(allocated, held) / size, "below", 1.0),
    )
    row = (
        BY_NAME[name].title,
        dtype,
        f"{times['alone'].median:,.1f}",
        *timing_cells(times["queued"]),
        f"{allocated / 1e6:.2f} of {size / 1e6:.2f}",
    )
    title = (
        "Steps queued one ahead by mx.async_eval, us per step, and the most memory of "
        f"{COUNTED_STEPS:,} such steps"
    )
    header = ("cache", "dtype", "alone", "queued", "quartiles", "MB")
    return Section(Table(title, header, (row,)), claims)


def queued(step: Callable[[], mx.array]) -> Burst:
    """Return bursts of steps that are each queued before the previous step has finished."""

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
        elapsed = time.perf_counter_ns() - start  # one step is still queued, as at the start
        mx.eval(previous)
        return elapsed / 1e3 / steps

    return burst


def allocated_bytes(layer: Layer) -> tuple[int, int]:
    """Return the most bytes that queued steps allocate, and the bytes that remain allocated."""
    burst = queued(layer.step)
    burst(COUNTED_STEPS // 10)
    before = active_memory()
    mx.reset_peak_memory()
    burst(COUNTED_STEPS)
    size = active_memory() - before
    return mx.get_peak_memory() - before, size


CAPACITIES = (128, 256, 512, 1024, 2048, 4096)
TIMES_SEEN = (1, 4, 16)


def growth(options: Options, dtype: str) -> Section:
    """Measure the 16-bit cache's step with several C, and with one C after longer texts."""
    dense, kind = BY_NAME["16"], getattr(mx, dtype)
    sized = {
        str(size): steady(dense, dataclasses.replace(options, capacity=size), kind)
        for size in CAPACITIES
    }
    read_layers = {
        str(times): steady(dense, options, kind, tokens=times * options.capacity)
        for times in TIMES_SEEN
    }
    by_rows, by_tokens = (
        interleave(
            {name: timed(layer.run) for name, layer in layers.items()}, options.repetitions
        )
        for layers in (sized, read_layers)
    )
    times = {int(size): timing.median for size, timing in by_rows.items()}
    start, slope = fit(times)
    rows = [
        (
            f"C = {size:,}, full",
            *timing_cells(by_rows[str(size)]),
            f"{start + slope * size:,.1f}",
        )
        for size in times
    ]
    rows += [
        (f"C = {options.capacity}, {name} x C tokens seen", *timing_cells(timing), "-")
        for name, timing in by_tokens.items()
    ]
    slowest = max(one.over(other) for one in by_tokens.values() for other in by_tokens.values())
    bend = slope_deviation(times)
    name = f"step after {TIMES_SEEN[0]} to {TIMES_SEEN[-1]} x C tokens, slowest / fastest"
    of_slope = f"change of the slope over C, {CAPACITIES[0]} to {CAPACITIES[-1]} rows"
    claims = (
        Claim(of_slope, dtype, bend, "at most", 0.2),
        Claim(name, dtype, slowest, "at most", 1.05),
    )
    header = ("cache", "us per step", "quartiles", "line")
    note = f"line: {start:.1f} us + {slope:.4f} us per row"
    return Section(
        Table(f"Growth of the 16-bit step, {dtype}", header, tuple(rows), note), claims
    )


def slope_deviation(times: Mapping[int, float]) -> float:
    """Return how much the slope of either half of the points differs from the slope of all."""
    sizes, middle = list(times), len(times) // 2
    halves = (sizes[: middle + 1], sizes[middle:])
    slopes = [fit({size: times[size] for size in half})[1] for half in halves]
    # Rounded, because the last digits differ from machine to machine.
    return round(max(abs(slope / fit(times)[1] - 1) for slope in slopes), 9)


def fit(times: Mapping[int, float]) -> tuple[float, float]:
    """Return the start and slope of the line with the least squares of relative errors."""
    medians = np.array(list(times.values()))
    slope, start = np.polyfit(list(times), medians, 1, w=1 / medians)
    return float(start), float(slope)
