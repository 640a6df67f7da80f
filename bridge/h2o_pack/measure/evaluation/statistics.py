"""Means of samples with bootstrap intervals, and differences between paired samples."""

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
LEAST_SAMPLES = 6
"""The least number n of samples for a verdict. With fewer, all differences have the same sign
by chance in more than 5 of 100 runs (2^(1 - n)), and an interval without 0 proves nothing."""
DRAWS = 4000
_SEED = 20260301
_DIGITS = 6


def rounded(value: float) -> float:
    """Round to six significant digits, which a rerun on the same machine reproduces."""
    if value == 0 or not math.isfinite(value):
        return 0.0
    return float(f"{value:.{_DIGITS}g}")


@dataclass(frozen=True)
class Estimate:
    """A mean and its confidence interval, in six significant digits."""

    mean: float
    low: float
    high: float
    samples: Annotated[int, doc("Number of samples.")]


@dataclass(frozen=True)
class Difference(Estimate):
    """A mean difference to a baseline, and whether it is better or worse."""

    verdict: Verdict


def estimate(values: Sequence[float]) -> Estimate:
    """Estimate the mean of independent samples, with its bootstrap interval.

    The interval depends on the values only, not on earlier estimates.

    Raises ValueError: there are no values, or one is not finite.
    """
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0 or not np.isfinite(data).all():
        raise ValueError(
            f"{data.size} values, {int(np.isfinite(data).sum())} of them finite, have no "
            "mean. Look for a sample without scored tokens."
        )
    mean = rounded(float(data.mean()))
    if data.size == 1 or np.ptp(data) == 0:
        return Estimate(mean, mean, mean, int(data.size))
    random = np.random.default_rng(_SEED)
    means = data[random.integers(0, data.size, (DRAWS, data.size))].mean(axis=1)
    tail = expanded_tail(data.size)
    low, high = np.quantile(means, [tail, 1 - tail])
    return Estimate(mean, rounded(float(low)), rounded(float(high)), int(data.size))


def compare(
    values: Sequence[float], baseline: Sequence[float], *, lower_is_better: bool
) -> Difference:
    """Estimate the difference to a baseline on the same samples.

    The verdict is "not distinguishable" if the interval of the mean difference contains 0, or
    if there are fewer than `LEAST_SAMPLES` samples.

    Raises ValueError: the two have different numbers of samples.
    """
    if len(values) != len(baseline):
        raise ValueError(
            f"{len(values)} samples cannot be paired with {len(baseline)}. Both must read "
            "the same."
        )
    pairs = zip(values, baseline, strict=True)
    difference = estimate([value - base for value, base in pairs])
    verdict: Verdict = "better" if (difference.mean < 0) == lower_is_better else "worse"
    if difference.low <= 0 <= difference.high or difference.samples < LEAST_SAMPLES:
        verdict = "not distinguishable"
    return Difference(**vars(difference), verdict=verdict)


def expanded_tail(samples: int) -> float:
    """Return the share of bootstrap means outside of the interval, on each of its two sides.

    This is Phi(-t * sqrt(n / (n - 1))) for n samples. Student's variable with n - 1 degrees of
    freedom is within t of 0 in 95 of 100 cases; the factor corrects that bootstrap means have
    the variance s^2 / n with a sum of squares divided by n, not by n - 1.
    """
    freedom = samples - 1
    return NormalDist().cdf(-student_bound(freedom) * math.sqrt(samples / freedom))


def student_bound(freedom: int) -> float:
    """Return the t such that Student's variable is within t of 0 in 95 of 100 cases."""
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        if _student_within(middle, freedom) < CONFIDENCE:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _student_within(t: float, freedom: int) -> float:
    """Return P(|T| < t), exact for whole degrees (Abramowitz and Stegun 26.7.3-4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= math.cos(angle) ** 2 * (k - 1) / k
        total += term
    inside = math.sin(angle) * total
    return 2 / math.pi * (angle + inside) if odd else inside
