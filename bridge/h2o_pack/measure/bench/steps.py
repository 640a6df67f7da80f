"""The decode step of one layer with every kind."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

import mlx.core as mx

from h2o_pack.measure.bench.caches import MeasuredCache
from h2o_pack.measure.bench.layer import steady
from h2o_pack.measure.bench.one_core import on_one_core
from h2o_pack.measure.bench.options import Options
from h2o_pack.measure.timing import Timing, interleave, timed
from h2o_pack.results import doc

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
    timings: Annotated[dict[str, Timing], doc("By cache.")]
    dense_on_one_core: Annotated[
        Timing, doc("The dense step with all threads of the process on one core.")
    ]


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
