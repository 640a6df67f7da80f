"""Interleaved measurement: medians, quartiles and ratios."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar

from h2o_pack.results import doc

Burst = Callable[[int], float]
"""Runs the given number of steps and returns the microseconds per step."""

LONGEST_BURST, BURST_US = 64, 8000.0
_T = TypeVar("_T", bound="Timing")


@dataclass(frozen=True)
class Timing:
    """Microseconds per step or token."""

    median: float
    first_quartile: float
    third_quartile: float
    samples: Annotated[int, doc("Repetitions.")]

    @classmethod
    def of(cls: type[_T], values: Iterable[float], **fields: float) -> _T:
        """Summarize samples, one per repetition, and keep them to compute ratios."""
        samples = tuple(values)
        first = third = samples[0]
        if len(samples) > 1:
            first, _, third = statistics.quantiles(samples, n=4, method="inclusive")
        summary = cls(statistics.median(samples), first, third, len(samples), **fields)
        # The samples are no field, so that msgspec leaves them out of the JSON.
        object.__setattr__(summary, "_values", samples)
        return summary

    @property
    def values(self) -> tuple[float, ...]:
        """The samples, in microseconds, in the order of the repetitions."""
        values: tuple[float, ...] = vars(self)["_values"]
        return values

    def over(self, other: Timing) -> float:
        """Return this time divided by `other`: the median of the repetitions' ratios.

        Both timings must come from one interleaved measurement: sample i of both is then from
        the same repetition.
        """
        pairs = zip(self.values, other.values, strict=True)
        return statistics.median(time / divisor for time, divisor in pairs)

    def without(self, other: Timing) -> Timing:
        """Return this timing minus `other`, subtracted repetition by repetition."""
        pairs = zip(self.values, other.values, strict=True)
        return Timing.of(time - subtracted for time, subtracted in pairs)


def timed(step: Callable[[], None]) -> Burst:
    """Return a burst that times `step`, which must return only when its work is done.

    The first steps of a burst are not timed, because the processor's caches still hold the
    other contenders' data.
    """

    def burst(steps: int) -> float:
        for _ in range(warm_up(steps)):
            step()
        start = time.perf_counter_ns()
        for _ in range(steps):
            step()
        return (time.perf_counter_ns() - start) / 1e3 / steps

    return burst


def warm_up(steps: int) -> int:
    """Return how many untimed steps a burst of `steps` timed steps begins with."""
    return 1 + steps // 8


def interleave(
    bursts: Mapping[str, Burst],
    repetitions: int,
    *,
    steps: int | None = None,
) -> dict[str, Timing]:
    """Measure contenders in turn, one burst of each per repetition.

    Each repetition has another order, so that a contender does not always follow the same one;
    all runs of the program use the same orders. steps: number of steps of a burst; None for as
    many as take about `BURST_US` microseconds.
    """
    if steps is None:
        for burst in bursts.values():
            burst(1)  # the first burst allocates memory, which takes time
        lengths = {name: _steps(burst(2)) for name, burst in bursts.items()}
    else:
        lengths = dict.fromkeys(bursts, steps)
    names = list(bursts)
    samples: dict[str, list[float]] = {name: [] for name in names}
    shuffled = random.Random(0)  # noqa: S311  nothing secret
    for _ in range(repetitions):
        for name in shuffled.sample(names, len(names)):
            samples[name].append(bursts[name](lengths[name]))
    return {name: Timing.of(values) for name, values in samples.items()}


def _steps(step_us: float) -> int:
    return max(1, min(LONGEST_BURST, round(BURST_US / step_us)))
