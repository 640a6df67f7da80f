"""A profile: what `h2o-pack profile --json` prints."""

from __future__ import annotations

from dataclasses import dataclass

from h2o_pack.measure.machine import BusyMachine
from h2o_pack.measure.profiling.accumulated import SHARES, Accumulated
from h2o_pack.measure.timing import Timing
from h2o_pack.results import Result

PARTS = ("write", "attention", "ledger", "rest")


@dataclass(frozen=True)
class Figures:
    """Means over queries (and samples, and heads where they are of a layer).

    entropy: of a query's attention, in nats. normalised_entropy: the same by ln of the
    tokens it sees, so that 1 is attention to all alike. concentration: probability in the
    32 largest. score_variance: of the logits that a query gives the tokens it sees.
    sparsity: share of entries under 1% of their row's largest, over all rows together.
    """

    entropy: float
    normalised_entropy: float
    concentration: float
    score_variance: float
    sparsity: float


@dataclass(frozen=True)
class HeadProfile:
    """A query head and the KV head that it reads."""

    head: int
    kv_head: int
    figures: Figures


@dataclass(frozen=True)
class LayerProfile:
    """A layer's attention.

    index: of its cache in the model; cache: that cache's class. kind: "full"; "sliding",
    whose queries see `window` tokens at most and whose figures are of that window; or
    "other". deviations: between samples (standard deviation). accumulated_evenly: what
    accumulates if every query looks at all it sees alike; early tokens are seen by more
    queries, so that is not an even share either. beyond: the share of attention older than
    each of `reach.windows`, first tokens aside. kv_heads: accumulated attention by KV head.
    """

    index: int
    cache: str
    kind: str
    window: int | None
    figures: Figures
    deviations: Figures
    accumulated: Accumulated
    accumulated_evenly: Accumulated
    beyond: tuple[float, ...]
    heads: tuple[HeadProfile, ...]
    kv_heads: tuple[Accumulated, ...]


@dataclass(frozen=True)
class SkippedLayer:
    """A layer without a profile."""

    index: int
    cache: str
    reason: str


@dataclass(frozen=True)
class PartTime(Timing):
    """The time of a part of a step; share: of the whole step, by the repetitions' ratios."""

    share: float


@dataclass(frozen=True)
class StepTime:
    """A decode step of the whole model, and its parts; `rows` of each cache in use.

    evicting: layers with an H2O cache; own: layers that keep the model's cache, whose time is
    in the rest. parts: by name in PARTS. rest_apart: the rest of the model, measured by itself
    with caches that do nothing.
    """

    rows: int
    evicting: int
    own: int
    step: Timing
    parts: dict[str, PartTime]
    rest_apart: PartTime


@dataclass(frozen=True, kw_only=True)
class Profile(Result):
    """What a run found, and the JSON of `profile --json` and profile.json.

    unfit: why H2O caches cannot serve the model, or null. held_bytes: the most attention that
    was held at once. top_shares_of, ranks and windows: what `top`, `curve` and `beyond` are
    given at. step_missing: why no step was timed, or null.
    """

    machine: BusyMachine
    model: str
    family: str
    text: str
    tokens: int
    samples: int
    first_row: int
    held_bytes: int
    unfit: str | None
    top_shares_of: tuple[float, ...] = SHARES
    ranks: tuple[int, ...]
    windows: tuple[int, ...]
    layers: tuple[LayerProfile, ...]
    skipped: tuple[SkippedLayer, ...]
    step: StepTime | None
    step_missing: str | None
