"""A profile: what `h2o-pack profile --json` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from h2o_pack.measure.machine import BusyMachine
from h2o_pack.measure.profiling.accumulated import SHARES, Accumulated
from h2o_pack.measure.timing import Timing
from h2o_pack.results import Result, doc

PARTS = ("write", "attention", "ledger", "rest")


@dataclass(frozen=True)
class Figures:
    """Means over queries, samples and, for layers, heads."""

    entropy: Annotated[float, doc("Of a query's attention, in nats.")]
    normalised_entropy: Annotated[
        float, doc("Entropy divided by ln of the tokens seen: 1 is the same attention to all.")
    ]
    concentration: Annotated[float, doc("Probability in the 32 largest.")]
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
    kind: Annotated[str, doc("What queries see: full, sliding or other.")]
    window: Annotated[int | None, doc("Tokens that a sliding layer sees.")]
    figures: Figures
    deviations: Annotated[Figures, doc("Standard deviations between samples.")]
    accumulated: Accumulated
    accumulated_evenly: Annotated[
        Accumulated,
        doc("The same if every query looked at all tokens alike."),
    ]
    beyond: Annotated[
        tuple[float, ...],
        doc("Share of attention older than each of windows, the first tokens aside."),
    ]
    heads: Annotated[tuple[HeadProfile, ...], doc("Query heads.")]
    kv_heads: Annotated[tuple[Accumulated, ...], doc("Accumulated attention by KV head.")]


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
    rest_apart: Annotated[PartTime, doc("The rest, measured with caches that do nothing.")]


@dataclass(frozen=True, kw_only=True)
class Profile(Result):
    """A model's attention by layer and head, and where a step's time goes."""

    machine: BusyMachine
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
    ranks: Annotated[tuple[int, ...], doc("Ranks that `curve` is for; 1 received most.")]
    windows: Annotated[tuple[int, ...], doc("Windows that `beyond` is for, in tokens.")]
    layers: tuple[LayerProfile, ...]
    skipped: Annotated[tuple[SkippedLayer, ...], doc("Layers without a profile.")]
    step: Annotated[StepTime | None, doc("Null where none was timed.")]
    step_missing: Annotated[str | None, doc("Why no step was timed.")]
