"""The types of a profile, which `h2o-pack profile --json` prints; summarizes attention."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from h2o_pack.files.text import read_json
from h2o_pack.measure.machine import Machine
from h2o_pack.results import Result, doc

SHARES = (0.05, 0.10, 0.20)
_POINTS = 48

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Accumulated:
    """Attention that tokens received over a sample, summed over its queries."""

    top: Annotated[
        tuple[float, ...],
        doc("Shares of the attention on the 5, 10 and 20% of tokens that received the most."),
    ]
    exponent: Annotated[
        float, doc("In the power law log(attention) = constant - exponent * log(rank).")
    ]
    r_squared: Annotated[float, doc("R² of this power law: 1 if it fits exactly.")]


def summarize(received: Array) -> Accumulated:
    """Summarize the attention that each token received, [T]; at least one value is positive.

    The line is fitted by least squares, at ranks that are evenly spaced on a log scale. It
    ignores the half of the tokens that received least: most of these are the newest tokens,
    which only a few queries see.
    """
    ordered = np.sort(received.astype(np.float64))[::-1]
    tokens, total = len(ordered), ordered.sum()
    top = tuple(float(ordered[: max(1, round(s * tokens))].sum() / total) for s in SHARES)
    at = np.unique(np.geomspace(1, tokens, _POINTS).round().astype(int))
    fitted = (at <= max(2, tokens // 2)) & (ordered[at - 1] > 0)
    slope, r_squared = _line(np.log(at[fitted]), np.log(ordered[at - 1][fitted]))
    return Accumulated(top, -slope, r_squared)


def mean(parts: Sequence[Accumulated]) -> Accumulated:
    """Return the mean of each figure."""
    return Accumulated(
        tuple(np.mean([part.top for part in parts], axis=0).tolist()),
        float(np.mean([part.exponent for part in parts])),
        float(np.mean([part.r_squared for part in parts])),
    )


def _line(x: Array, y: Array) -> tuple[float, float]:
    """Return the slope of the least-squares line, and the share of y's variance it explains."""
    if len(x) < 2 or np.ptp(y) == 0:  # noqa: PLR2004  two points make a line
        return 0.0, 1.0
    slope = np.polyfit(x, y, 1)[0]
    return float(slope), float(np.corrcoef(x, y)[0, 1] ** 2)


Kind = Literal["full", "sliding", "other"]
Amount = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=-1e-4, le=1 + 1e-4)]
"""A share of attention; a sum of float32 may be slightly below 0 or above 1."""


@dataclass(frozen=True)
class Figures:
    """Means over queries and samples; the means of a layer are over its heads too."""

    entropy: Annotated[Amount, doc("Entropy of a query's attention, in nats.")]
    normalized_entropy: Annotated[
        float,
        doc("Entropy divided by ln(number of tokens seen): 1 if all get equal attention."),
    ]
    concentration: Annotated[Amount, doc("Sum of a query's 32 largest probabilities.")]
    score_variance: Annotated[
        float, doc("Variance of a query's logits over the tokens it sees.")
    ]
    sparsity: Annotated[
        float,
        doc("Share of the tokens that get less than 1% of the query's largest probability."),
    ]


@dataclass(frozen=True)
class HeadProfile:
    """The attention of one query head."""

    head: int
    kv_head: Annotated[int, doc("The KV head that the query head reads.")]
    figures: Figures


@dataclass(frozen=True)
class LayerProfile:
    """The attention of one layer, as means over heads, samples and queries."""

    index: Annotated[int, doc("Index of the layer's cache in the model.")]
    cache: Annotated[str, doc("Class of mlx_lm's cache for the layer.")]
    kind: Annotated[Kind, doc("Which tokens a query sees: all, a window, or others.")]
    window: Annotated[int | None, doc("Tokens that a sliding layer sees.")]
    figures: Figures
    deviations: Annotated[Figures, doc("Standard deviations between samples.")]
    accumulated: Accumulated
    accumulated_evenly: Annotated[
        Accumulated,
        doc("The same as `accumulated`, if every query looked at all tokens equally."),
    ]
    beyond: Annotated[
        tuple[Share, ...],
        doc(
            "For each of `windows`, the share of attention on tokens before the window; the "
            "first tokens do not count."
        ),
    ]
    retrieval: Annotated[
        Amount,
        doc(
            "How strongly a repeated passage attends to its first occurrence: the sum, over "
            "query heads and tokens, of the largest probability that a token gets, squared."
        ),
    ]
    heads: Annotated[tuple[HeadProfile, ...], doc("Query heads.")]


@dataclass(frozen=True)
class SkippedLayer:
    """A layer whose attention was not profiled."""

    index: Annotated[int, doc("Index of the layer's cache in the model.")]
    cache: Annotated[str, doc("Class of mlx_lm's cache for the layer.")]
    reason: Annotated[str, doc("Why it was not profiled.")]


@dataclass(frozen=True, kw_only=True)
class Profile(Result):
    """A model's attention by layer and head."""

    machine: Machine
    model: str
    family: Annotated[str, doc("mlx_lm's module for the model.")]
    text: Annotated[str, doc("Name of the text that the model read.")]
    tokens: Annotated[int, doc("Tokens per sample.")]
    samples: Annotated[int, doc("Number of pieces of the text.")]
    first_row: Annotated[int, doc("Position of the first query in the means.")]
    held_bytes: Annotated[int, doc("Most bytes of attention that were in memory at once.")]
    unfit: Annotated[str | None, doc("Why the model cannot use H2O caches; null if it can.")]
    top_shares_of: Annotated[
        tuple[float, ...], doc("For each entry of `top`, the share of tokens that it is about.")
    ] = SHARES
    windows: Annotated[
        tuple[Annotated[int, Meta(ge=1)], ...],
        doc("For each entry of `beyond`, the window in tokens that it is about."),
    ]
    layers: tuple[LayerProfile, ...]
    skipped: Annotated[tuple[SkippedLayer, ...], doc("Layers without a profile.")]

    def __post_init__(self) -> None:
        """Check the rules that the types do not express; ValueError if one is broken."""
        indices = [layer.index for layer in self.layers] + [
            layer.index for layer in self.skipped
        ]
        if sorted(indices) != list(range(self.caches)):
            raise ValueError("layers and skipped must name every layer once")
        if any(window >= larger for window, larger in itertools.pairwise(self.windows)):
            raise ValueError("windows must be increasing numbers of tokens")
        for i, layer in enumerate(self.layers):
            if len(layer.beyond) != len(self.windows):
                count = len(self.windows)
                raise ValueError(
                    f"layers[{i}].beyond must have a share for each of {count} windows"
                )

    @property
    def caches(self) -> int:
        """The number of caches of the model."""
        return len(self.layers) + len(self.skipped)

    @property
    def full(self) -> tuple[LayerProfile, ...]:
        """The layers with full attention, which can have budgets, in the model's order."""
        layers = (layer for layer in self.layers if layer.kind == "full")
        return tuple(sorted(layers, key=lambda layer: layer.index))


def read_profile(path: Path) -> Profile:
    """Read a profile.json.

    Raises UserError, which names the file and the entry: the file is not a profile.
    """
    return read_json(path, Profile, "a profile", "Give the profile.json of `h2o-pack profile`.")
