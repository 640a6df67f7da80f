"""Interleaved measurement: medians, quartiles and ratios."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar

from h2o_pack.results import doc

Burst = Callable[[int], float]
"""Runs the given number of steps and returns the microseconds per step."""

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


def interleave(
    bursts: Mapping[str, Burst], repetitions: int, *, steps: int
) -> dict[str, Timing]:
    """Measure contenders in turn, one burst of each per repetition.

    Each repetition has another order, so that a contender does not always follow the same one;
    all runs of the program use the same orders. steps: number of steps of a burst.
    """
    names = list(bursts)
    samples: dict[str, list[float]] = {name: [] for name in names}
    shuffled = random.Random(0)  # noqa: S311  nothing secret
    for _ in range(repetitions):
        for name in shuffled.sample(names, len(names)):
            samples[name].append(bursts[name](steps))
    return {name: Timing.of(values) for name, values in samples.items()}
