"""How the step grows with the rows kept, and that it does not with the tokens seen."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated

import mlx.core as mx
import numpy as np

from h2o_pack.measure.bench.caches import BY_NAME
from h2o_pack.measure.bench.layer import steady
from h2o_pack.measure.bench.options import Options
from h2o_pack.measure.timing import Timing, interleave, timed
from h2o_pack.results import doc

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
    by_capacity: Annotated[dict[int, Timing], doc("By rows C.")]
    by_tokens_seen: Annotated[
        dict[int, Timing], doc("By tokens seen before, in multiples of C.")
    ]
    start: Annotated[float, doc("Of the line through all C, in microseconds.")]
    slope: Annotated[float, doc("Of that line, in microseconds per row.")]

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
