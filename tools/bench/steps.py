"""Decode steps of one layer: alone, evicting, queued one ahead, and as the rows grow."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import KVCache

from h2o_pack.measure.allocated import active_memory
from h2o_pack.measure.bench import MeasuredCache
from h2o_pack.measure.timing import Burst, Timing, interleave, timed, warm_up
from tools.bench.caches import BY_NAME, Layer, Options, group_size, steady

_PAUSE_NS = 200_000
_CONFINED = "dense on one core"


def measure_evaluation(options: Options) -> Timing:
    """Measure mx.eval of one addition of one element: what MLX takes for any step.

    MLX's thread sleeps between steps and has to be woken, so the main thread is busy for
    as long as a step takes before each evaluation.
    """
    one = mx.ones((1,))
    mx.eval(one)

    def burst(steps: int) -> float:
        spent = 0
        for _ in range(steps):
            asleep_until = time.perf_counter_ns() + _PAUSE_NS
            while time.perf_counter_ns() < asleep_until:
                pass
            start = time.perf_counter_ns()
            mx.eval(one + 1)
            spent += time.perf_counter_ns() - start
        return spent / 1e3 / steps

    return interleave({"evaluation": burst}, options.repetitions)["evaluation"]


@dataclass(frozen=True)
class Steps:
    """Microseconds of a decode step: write, attention and ledger."""

    dtype: str
    timings: dict[str, Timing]
    dense_on_one_core: Timing


def measure_steps(caches: tuple[MeasuredCache, ...], options: Options, dtype: str) -> Steps:
    """Measure each cache's step with C rows, each step evicting where the cache does."""
    bursts = {}
    for kind in caches:
        layer = steady(kind, options, getattr(mx, dtype))
        bursts[kind.name] = timed(layer.run)
        if kind.name == "dense":
            bursts[_CONFINED] = on_one_core(timed(layer.run))
    timings = interleave(bursts, options.repetitions)
    return Steps(dtype, timings, timings.pop(_CONFINED))


_THREADS = Path("/proc/self/task")


def on_one_core(burst: Burst) -> Burst:
    """Return the burst with all threads of the process on one core, if the system allows it.

    MLX evaluates on a thread of its own. Handing each step over to it costs tens of
    microseconds when that thread sleeps on another core, which is neither arithmetic nor
    memory; on one core the hand-over is short, and nothing runs in parallel.
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
    threads = [int(each.name) for each in _THREADS.iterdir()]
    allowed = os.sched_getaffinity(0)
    _allow(threads, {min(allowed)})
    try:
        yield
    finally:
        _allow(threads, allowed)


def _allow(threads: list[int], cores: set[int]) -> None:
    for thread in threads:
        with suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(thread, cores)


STEPS = 32
"""Steps of a burst; a cache that does not evict grows by as many rows meanwhile."""


@dataclass(frozen=True)
class Eviction:
    """Microseconds per step with C rows, our dense cache and the paper's way."""

    dtype: str
    ours_evicting: Timing
    ours_not_evicting: Timing
    paper_evicting: Timing
    paper_not_evicting: Timing


def measure_eviction(options: Options, dtype: str) -> Eviction:
    """Measure steps that evict and steps that do not, for ours and the paper's way.

    Each pair is measured by itself: what follows the paper's long bursts would look slow.
    """
    pairs = {}
    for name in ("dense", "paper"):
        full = steady(BY_NAME[name], options, getattr(mx, dtype))
        growing = _growing(name, options, getattr(mx, dtype))
        bursts: dict[str, Burst] = {"evicting": timed(full.run), "not": growing}
        pairs[name] = interleave(bursts, options.repetitions, steps=STEPS)
    return Eviction(
        dtype=dtype,
        ours_evicting=pairs["dense"]["evicting"],
        ours_not_evicting=pairs["dense"]["not"],
        paper_evicting=pairs["paper"]["evicting"],
        paper_not_evicting=pairs["paper"]["not"],
    )


def _growing(name: str, options: Options, dtype: mx.Dtype) -> Burst:
    """Return bursts whose steps have `capacity` rows on average and evict none.

    The cache has room for the rows of a burst, which are taken back after it, untimed.
    """
    most = options.capacity + STEPS // 2
    cache = BY_NAME[name].make(most, group_size(options))
    layer = Layer(cache, dataclasses.replace(options, capacity=most), dtype)
    layer.fill(most)
    burst = timed(layer.run)

    def run(steps: int) -> float:
        cache.trim(warm_up(steps) + steps)
        return burst(steps)

    return run


ROWS = 5000
_WORK = 160


def other_work() -> Callable[[], mx.array]:
    """Return a step that only does what comes before the write: a product of two matrices."""
    matrix = mx.random.normal((_WORK, _WORK))
    mx.eval(matrix)

    def step() -> mx.array:
        return (matrix @ matrix).sum()

    return step


def upstream_write_step(
    options: Options, dtype: mx.Dtype, before: Callable[[], mx.array]
) -> Callable[[], mx.array]:
    """Return a step that writes a token into 5,000 rows and reads only that row.

    Attention over so many rows would hide what the write costs.
    """
    cache = KVCache()
    rows = mx.zeros((1, options.kv_heads, ROWS, options.head_dim), dtype)
    token = mx.ones((1, options.kv_heads, 1, options.head_dim), dtype)
    cache.update_and_fetch(rows, rows)
    mx.eval(cache.state, token)

    def step() -> mx.array:
        cache.trim(1)
        new = token + before().astype(dtype)
        keys, values = cache.update_and_fetch(new, new)
        seen: mx.array = keys[..., -1:, :] + values[..., -1:, :]
        return seen

    return step


COUNTED_STEPS = 1000
_UPSTREAM_STEPS = 12


@dataclass(frozen=True)
class Pipelining:
    """A cache's step, alone and queued one ahead, and the memory of 1,000 queued steps."""

    name: str
    dtype: str
    alone: Timing
    queued: Timing
    cache_bytes: int
    allocated_bytes: int
    kept_bytes: int


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
    before = other_work()
    step = upstream_write_step(options, getattr(mx, dtype), before)
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


CAPACITIES = (128, 256, 512, 1024, 2048, 4096)
TIMES_SEEN = (1, 4, 16)


@dataclass(frozen=True)
class Line:
    """time = start + slope * C, by least squares on relative errors."""

    start: float
    slope: float


@dataclass(frozen=True)
class Scaling:
    """Microseconds per dense step."""

    dtype: str
    by_capacity: dict[int, Timing]
    by_tokens_seen: dict[int, Timing]
    start: float
    slope: float

    @classmethod
    def of(
        cls, dtype: str, by_capacity: dict[int, Timing], by_tokens_seen: dict[int, Timing]
    ) -> Scaling:
        """Fit the line."""
        line = _line(by_capacity, list(by_capacity))
        return cls(dtype, by_capacity, by_tokens_seen, line.start, line.slope)

    @property
    def lower_line(self) -> Line:
        """Through the smaller half of the capacities."""
        sizes = list(self.by_capacity)
        return _line(self.by_capacity, sizes[: len(sizes) // 2 + 1])

    @property
    def upper_line(self) -> Line:
        """Through the larger half of the capacities."""
        sizes = list(self.by_capacity)
        return _line(self.by_capacity, sizes[len(sizes) // 2 :])

    @property
    def slope_deviation(self) -> float:
        """By what share the slope of either half differs from that of the whole."""
        halves = (self.lower_line.slope, self.upper_line.slope)
        return max(abs(half / self.slope - 1) for half in halves)

    @property
    def tokens_seen_deviation(self) -> float:
        """The slowest over the fastest number of tokens seen."""
        timings = list(self.by_tokens_seen.values())
        return max(one.over(other) for one in timings for other in timings)


def _line(by_capacity: dict[int, Timing], sizes: list[int]) -> Line:
    return fit(sizes, [by_capacity[size].median for size in sizes])


def measure_scaling(options: Options, dtype: str) -> Scaling:
    """Measure the dense step for several C, and at one C after several lengths."""
    dense, kind = BY_NAME["dense"], getattr(mx, dtype)
    sized = {
        str(size): steady(dense, dataclasses.replace(options, capacity=size), kind)
        for size in CAPACITIES
    }
    seen = {
        str(times): steady(dense, options, kind, tokens=times * options.capacity)
        for times in TIMES_SEEN
    }
    by_capacity, by_tokens_seen = (
        interleave(
            {name: timed(layer.run) for name, layer in layers.items()}, options.repetitions
        )
        for layers in (sized, seen)
    )
    return Scaling.of(
        dtype,
        {int(name): timing for name, timing in by_capacity.items()},
        {int(name): timing for name, timing in by_tokens_seen.items()},
    )


def fit(sizes: list[int], times: list[float]) -> Line:
    """Fit the line whose relative errors have the least sum of squares."""
    slope, start = np.polyfit(sizes, times, 1, w=1 / np.array(times))
    return Line(float(start), float(slope))
