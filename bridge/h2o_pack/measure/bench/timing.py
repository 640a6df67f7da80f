"""Interleaved measurement: medians, quartiles and ratios."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Burst = Callable[[int], float]
"""Runs so many steps and returns microseconds a step."""

LONGEST_BURST = 64


@dataclass(frozen=True)
class Timing:
    """Microseconds a step, one sample a repetition."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle sample, in microseconds."""
        return statistics.median(self.samples)

    @property
    def quartiles(self) -> tuple[float, float]:
        """What a quarter and three quarters of the samples lie below, in microseconds."""
        if len(self.samples) == 1:
            return self.samples[0], self.samples[0]
        first, _, third = statistics.quantiles(self.samples, n=4, method="inclusive")
        return first, third

    def over(self, other: Timing) -> float:
        """How many times `other` this is: the median of the repetitions' ratios.

        Both come from one interleaved measurement, so sample i of one stands beside
        sample i of the other.
        """
        pairs = zip(self.samples, other.samples, strict=True)
        return statistics.median(one / another for one, another in pairs)

    def without(self, other: Timing) -> Timing:
        """What is left of each sample when `other`'s is taken off."""
        pairs = zip(self.samples, other.samples, strict=True)
        return Timing(tuple(one - another for one, another in pairs))


def timed(step: Callable[[], None]) -> Burst:
    """Bursts of `step`, which returns when its work is done.

    The first steps of a burst are not timed: they find the processor's caches full of what
    the other contenders left there.
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
    """How many steps come before the timed ones of a burst."""
    return 1 + steps // 8


def interleave(
    bursts: Mapping[str, Burst],
    repetitions: int,
    *,
    steps: int | None = None,
    burst_us: float = 8000.0,
) -> dict[str, Timing]:
    """Measure contenders in turn, one burst each a repetition.

    Every repetition has an order of its own, so that no contender always follows the same
    other one. The orders are the same in every run.

    Args:
        bursts: contenders by name.
        repetitions: bursts of each.
        steps: steps of a burst; None for as many as take about `burst_us`.
        burst_us: length of a burst in microseconds, for steps faster than that.

    """
    if steps is None:
        for burst in bursts.values():
            burst(1)  # the first one pays for memory that later ones find ready
        lengths = {name: _steps(burst(2), burst_us) for name, burst in bursts.items()}
    else:
        lengths = dict.fromkeys(bursts, steps)
    names = list(bursts)
    samples: dict[str, list[float]] = {name: [] for name in names}
    shuffled = random.Random(0)  # noqa: S311  nothing secret
    for _ in range(repetitions):
        for name in shuffled.sample(names, len(names)):
            samples[name].append(bursts[name](lengths[name]))
    return {name: Timing(tuple(taken)) for name, taken in samples.items()}


def _steps(step_us: float, burst_us: float) -> int:
    return max(1, min(LONGEST_BURST, round(burst_us / step_us)))
