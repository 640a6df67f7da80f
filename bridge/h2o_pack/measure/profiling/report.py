"""A profile: what `h2o-pack profile --json` prints, and attention added up over a text."""

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
from h2o_pack.measure.timing import Timing
from h2o_pack.results import Result, doc

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


def summarize(received: Array) -> Accumulated:
    """Summarize what each token received, [T]; at least one value is positive.

    The line is fitted by least squares at ranks that are even on a log scale, up to half
    of the tokens: the rest are mostly the newest tokens, which few queries could see yet.
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
    """Slope of the least-squares line, and the share of y's variance it explains."""
    if len(x) < 2 or np.ptp(y) == 0:  # noqa: PLR2004  two points make a line
        return 0.0, 1.0
    slope = np.polyfit(x, y, 1)[0]
    return float(slope), float(np.corrcoef(x, y)[0, 1] ** 2)


Kind = Literal["full", "sliding", "other"]
Amount = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=-1e-4, le=1 + 1e-4)]
"""A share of attention; sums of float32 may leave 0 to 1 by a little."""

PARTS = ("write", "attention", "ledger", "rest")


@dataclass(frozen=True)
class Figures:
    """Means over queries, samples and, for layers, heads."""

    entropy: Annotated[Amount, doc("Of a query's attention, in nats.")]
    normalised_entropy: Annotated[
        float, doc("Entropy divided by ln of the tokens seen: 1 is the same attention to all.")
    ]
    concentration: Annotated[Amount, doc("Probability in the 32 largest.")]
    score_variance: Annotated[float, doc("Of the logits of a query over the tokens it sees.")]
    sparsity: Annotated[float, doc("Share of entries below 1% of the largest in their row.")]


@dataclass(frozen=True)
class HeadProfile:
    """A query head."""

    head: int
    kv_head: Annotated[int, doc("The KV head that it reads.")]
    figures: Figures


@dataclass(frozen=True)
class LayerProfile:
    """A layer's attention."""

    index: Annotated[int, doc("Of the layer's cache in the model.")]
    cache: Annotated[str, doc("Class of the model's own cache.")]
    kind: Annotated[Kind, doc("What queries see.")]
    window: Annotated[int | None, doc("Tokens that a sliding layer sees.")]
    figures: Figures
    deviations: Annotated[Figures, doc("Standard deviations between samples.")]
    accumulated: Accumulated
    accumulated_evenly: Annotated[
        Accumulated,
        doc("The same if every query looked at all tokens alike."),
    ]
    beyond: Annotated[
        tuple[Share, ...],
        doc("Share of attention older than each of windows, the first tokens aside."),
    ]
    heads: Annotated[tuple[HeadProfile, ...], doc("Query heads.")]


@dataclass(frozen=True)
class SkippedLayer:
    """A layer without a profile."""

    index: Annotated[int, doc("Of its cache.")]
    cache: Annotated[str, doc("Class.")]
    reason: Annotated[str, doc("Why.")]


@dataclass(frozen=True)
class PartTime(Timing):
    """The time of a part of a step."""

    share: Annotated[float, doc("Of the whole step: the median of the repetitions' ratios.")]


@dataclass(frozen=True)
class StepTime:
    """A decode step of the whole model."""

    rows: Annotated[int, doc("Of each H2O cache, all in use.")]
    evicting: Annotated[int, doc("Layers with an H2O cache.")]
    own: Annotated[int, doc("Layers that keep the model's cache; their time is in the rest.")]
    step: Annotated[Timing, doc("The whole step.")]
    parts: Annotated[
        dict[str, PartTime], doc("By name: differences between runs with parts left out.")
    ]


@dataclass(frozen=True, kw_only=True)
class Profile(Result):
    """A model's attention by layer and head, and where a step's time goes."""

    machine: Machine
    model: str
    family: Annotated[str, doc("Model file of mlx_lm.")]
    text: Annotated[str, doc("What was read.")]
    tokens: Annotated[int, doc("Per sample.")]
    samples: Annotated[int, doc("Pieces of the text.")]
    first_row: Annotated[int, doc("Position of the first query in the means.")]
    held_bytes: Annotated[int, doc("The most attention that was held at once.")]
    unfit: Annotated[str | None, doc("Why H2O caches cannot serve the model.")]
    top_shares_of: Annotated[
        tuple[float, ...], doc("Shares of the tokens that `top` is for.")
    ] = SHARES
    windows: Annotated[
        tuple[Annotated[int, Meta(ge=1)], ...], doc("Windows that `beyond` is for, in tokens.")
    ]
    layers: tuple[LayerProfile, ...]
    skipped: Annotated[tuple[SkippedLayer, ...], doc("Layers without a profile.")]
    step: Annotated[StepTime | None, doc("Null where none was timed.")]
    step_missing: Annotated[str | None, doc("Why no step was timed.")]

    def __post_init__(self) -> None:
        """Check what the types do not say; ValueError if it is wrong."""
        indices = [layer.index for layer in self.layers] + [
            layer.index for layer in self.skipped
        ]
        if sorted(indices) != list(range(self.caches)):
            raise ValueError("layers and skipped must name every layer once")
        if any(one >= next_one for one, next_one in itertools.pairwise(self.windows)):
            raise ValueError("windows must be increasing numbers of tokens")
        for i, layer in enumerate(self.layers):
            if len(layer.beyond) != len(self.windows):
                count = len(self.windows)
                raise ValueError(
                    f"layers[{i}].beyond must have a share for each of {count} windows"
                )

    @property
    def caches(self) -> int:
        """How many caches the model has."""
        return len(self.layers) + len(self.skipped)

    @property
    def full(self) -> tuple[LayerProfile, ...]:
        """The layers with full attention, in order: those that budgets are for."""
        layers = (layer for layer in self.layers if layer.kind == "full")
        return tuple(sorted(layers, key=lambda layer: layer.index))


def read_profile(path: Path) -> Profile:
    """Read a profile.json; UserError names the file and the entry if it is none."""
    return read_json(path, Profile, "a profile", "Give the profile.json of `h2o-pack profile`.")
