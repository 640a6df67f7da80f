"""What an eviction costs: steps that evict beside steps that do not, at the same rows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import mlx.core as mx

from h2o_pack.measure.bench.caches import BY_NAME
from h2o_pack.measure.bench.layer import Layer, group_size, steady
from h2o_pack.measure.bench.options import Options
from h2o_pack.measure.timing import Burst, Timing, interleave, timed, warm_up

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
