"""What share of the accumulated attention a few tokens hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from h2o_pack.results import doc

SHARES = (0.05, 0.10, 0.20)
_POINTS = 48

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Accumulated:
    """Attention that tokens received over a sample, summed over its queries."""

    top: Annotated[
        tuple[float, ...], doc("Shares held by the 5, 10 and 20% of tokens that hold most.")
    ]
    exponent: Annotated[
        float, doc("Of the line log(attention) = constant - exponent * log(rank), a power law.")
    ]
    r_squared: Annotated[float, doc("How well that line fits.")]
    curve: Annotated[tuple[float, ...], doc("Attention in multiples of the mean, by rank.")]


def ranks(tokens: int) -> Array:
    """Return ranks from 1 (the largest) to `tokens`, evenly spaced on a log scale."""
    return np.unique(np.geomspace(1, tokens, _POINTS).round().astype(int))


def summarize(received: Array) -> Accumulated:
    """Summarize what each token received, [T]; at least one value is positive.

    The line is fitted by least squares at ranks that are even on a log scale, up to half
    of the tokens: the rest are mostly the newest tokens, which few queries could see yet.
    """
    ordered = np.sort(received.astype(np.float64))[::-1]
    tokens, total = len(ordered), ordered.sum()
    top = tuple(float(ordered[: max(1, round(s * tokens))].sum() / total) for s in SHARES)
    at = ranks(tokens)
    curve = ordered[at - 1] * tokens / total
    fitted = (at <= max(2, tokens // 2)) & (curve > 0)
    exponent, r_squared = _line(np.log(at[fitted]), np.log(curve[fitted]))
    return Accumulated(top, -exponent, r_squared, tuple(float(each) for each in curve))


def mean(parts: list[Accumulated]) -> Accumulated:
    """Return the mean of each figure; of curves, read on a log scale, the geometric mean."""
    curves = np.log(np.maximum([each.curve for each in parts], 1e-30))
    return Accumulated(
        tuple(float(share) for share in np.mean([each.top for each in parts], axis=0)),
        float(np.mean([each.exponent for each in parts])),
        float(np.mean([each.r_squared for each in parts])),
        tuple(float(value) for value in np.exp(curves.mean(axis=0))),
    )


def _line(x: Array, y: Array) -> tuple[float, float]:
    """Slope of the least-squares line, and the share of y's variance it explains."""
    if len(x) < 2 or np.ptp(y) == 0:  # noqa: PLR2004  two points make a line
        return 0.0, 1.0
    slope = np.polyfit(x, y, 1)[0]
    return float(slope), float(np.corrcoef(x, y)[0, 1] ** 2)
