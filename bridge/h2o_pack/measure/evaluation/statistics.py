"""Means with bootstrap intervals, and which differences are real.

Samples are drawn with replacement; two contenders are compared by the differences within a
sample, as both read the same text. With few samples the plain percentile interval is too
narrow (it forgets that the spread is estimated too), so its tails are taken further out, by
Student's t: the expanded percentile interval of T. Hesterberg, "What Teachers Should Know
About the Bootstrap" (2015), section 5.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Literal

import numpy as np

from h2o_pack.results import doc

Verdict = Literal["better", "worse", "not distinguishable"]

CONFIDENCE = 0.95
DRAWS = 4000
LEAST_SAMPLES = 6
"""With fewer, all differences have one sign by chance in more than 5 of 100 runs (2^(1 - n)),
and no interval made of them can be trusted to leave 0 out."""
DIGITS = 6
_SEED = 20260301
_CHUNK = 1000


@dataclass(frozen=True)
class Estimate:
    """A mean and its confidence interval."""

    mean: float
    low: float
    high: float
    samples: Annotated[int, doc("That it is of.")]

    def rounded(self) -> Estimate:
        """Return the same with `DIGITS` significant digits."""
        mean, low, high = map(rounded, (self.mean, self.low, self.high))
        return Estimate(mean, low, high, self.samples)

    def overlaps(self, other: Estimate) -> bool:
        """Return whether the two intervals have a value in common."""
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True)
class Difference(Estimate):
    """A mean difference to a baseline, and what it says."""

    verdict: Verdict

    def rounded(self) -> Difference:
        """Return the same with `DIGITS` significant digits."""
        return Difference(**vars(super().rounded()), verdict=self.verdict)


def rounded(value: float) -> float:
    """Round to `DIGITS` significant digits: what a rerun on the same machine gives again."""
    if value == 0 or not math.isfinite(value):
        return 0.0
    return float(f"{value:.{DIGITS}g}")


def estimate(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Estimate the mean of independent samples, with its bootstrap interval.

    The same values give the same interval, whatever else was estimated before.

    Raises:
        ValueError: there are no values, or one is not finite.

    """
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0 or not np.isfinite(data).all():
        raise ValueError(
            f"{data.size} values, {int(np.isfinite(data).sum())} of them finite, have no "
            "mean. Look for a sample without scored tokens."
        )
    mean = float(data.mean())
    if data.size == 1 or np.ptp(data) == 0:
        return Estimate(mean, mean, mean, int(data.size))
    rng = np.random.default_rng(_SEED)
    means = np.concatenate(
        [
            data[rng.integers(0, data.size, (min(_CHUNK, DRAWS - i), data.size))].mean(axis=1)
            for i in range(0, DRAWS, _CHUNK)
        ]
    )
    tail = expanded_tail(data.size, confidence)
    low, high = np.quantile(means, [tail, 1 - tail])
    return Estimate(mean, float(low), float(high), int(data.size))


def compare(
    values: Sequence[float], baseline: Sequence[float], *, lower_is_better: bool
) -> Difference:
    """Estimate the difference to a baseline on the same samples.

    Not distinguishable when the interval of the mean difference has 0 in it, or when there
    are fewer than `LEAST_SAMPLES` samples.

    Raises:
        ValueError: the two are of different samples.

    """
    if len(values) != len(baseline):
        raise ValueError(
            f"{len(values)} samples cannot be paired with {len(baseline)}. Both must read "
            "the same."
        )
    pairs = zip(values, baseline, strict=True)
    found = estimate([value - base for value, base in pairs])
    verdict: Verdict = "better" if (found.mean < 0) == lower_is_better else "worse"
    if found.low <= 0 <= found.high or found.samples < LEAST_SAMPLES:
        verdict = "not distinguishable"
    return Difference(**vars(found), verdict=verdict)


def expanded_tail(samples: int, confidence: float = CONFIDENCE) -> float:
    """Return the share of bootstrap means that lies outside on each side.

    Phi(t * sqrt(n / (n - 1))), t the quantile of Student's t with n - 1 degrees: n / (n - 1)
    because bootstrap means spread by n rather than n - 1.
    """
    freedom = samples - 1
    t = student_quantile((1 - confidence) / 2, freedom)
    return NormalDist().cdf(t * math.sqrt(samples / freedom))


def student_quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t, found by bisection.

    Raises:
        ValueError: the probability is not between 0 and 1, or there is no freedom.

    """
    if not 0 < probability < 1 or freedom < 1:
        raise ValueError(f"no t quantile at {probability} with {freedom} degrees of freedom.")
    if probability > 0.5:  # noqa: PLR2004  symmetric
        return -student_quantile(1 - probability, freedom)
    low, high = -1e6, 0.0
    for _ in range(200):
        middle = (low + high) / 2
        if _student_tail(-middle, freedom) > probability:
            high = middle
        else:
            low = middle
    return (low + high) / 2


def _student_tail(t: float, freedom: int) -> float:
    """P(T > t) for t >= 0, exact for whole degrees (Abramowitz and Stegun 26.7.3-4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine = math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine * (k - 1) / k
        total += term
    inside = math.sin(angle) * total
    if odd:
        inside = 2 / math.pi * (angle + inside)
    return (1 - inside) / 2
