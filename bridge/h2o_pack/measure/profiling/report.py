"""A profile, and its JSON (schema: bridge/h2o_pack/schemas/profile.json)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from h2o_pack.measure.bench.machine import Machine
from h2o_pack.measure.bench.timing import Timing
from h2o_pack.measure.profiling.accumulated import SHARES, Accumulated, ranks
from h2o_pack.measure.profiling.reach import windows

FORMAT = 1
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
class StepTime:
    """A decode step of the whole model, and its parts; `rows` of each cache in use.

    parts: by name in PARTS. apart: the rest of the model, measured by itself with caches
    that do nothing. evicting: layers with an H2O cache; own: layers that keep the model's
    cache, whose time is in the rest.
    """

    rows: int
    evicting: int
    own: int
    step: Timing
    parts: dict[str, Timing]
    apart: Timing

    def share(self, part: str) -> float:
        """What share of the step a part takes: the median of the repetitions' ratios."""
        return self.parts[part].over(self.step)


@dataclass(frozen=True)
class Profile:
    """What a run found. unfit: why H2O caches cannot serve the model, or None."""

    machine: Machine
    model: str
    family: str
    text: str
    tokens: int
    samples: int
    first_row: int
    held_bytes: int
    unfit: str | None
    layers: tuple[LayerProfile, ...]
    skipped: tuple[SkippedLayer, ...]
    step: StepTime | None
    step_missing: str | None

    def to_json(self) -> str:
        """The document that the schema describes."""
        document = {
            "format": FORMAT,
            "machine": asdict(self.machine),
            "model": self.model,
            "family": self.family,
            "text": self.text,
            "tokens": self.tokens,
            "samples": self.samples,
            "first_row": self.first_row,
            "held_bytes": self.held_bytes,
            "unfit": self.unfit,
            "top_shares_of": list(SHARES),
            "ranks": ranks(self.tokens).tolist(),
            "windows": windows(self.tokens).tolist(),
            "layers": [asdict(layer) for layer in self.layers],
            "skipped": [asdict(layer) for layer in self.skipped],
            "step": None if self.step is None else _step(self.step),
            "step_missing": self.step_missing,
        }
        return json.dumps(document, indent=1, allow_nan=False)


def _step(step: StepTime) -> dict[str, Any]:
    parts = {name: {**_timing(step.parts[name]), "share": step.share(name)} for name in PARTS}
    return {
        "rows": step.rows,
        "evicting": step.evicting,
        "own": step.own,
        "step": _timing(step.step),
        "parts": parts,
        "rest_apart": {**_timing(step.apart), "share": step.apart.over(step.step)},
    }


def _timing(timing: Timing) -> dict[str, float]:
    first, third = timing.quartiles
    return {
        "median": timing.median,
        "first_quartile": first,
        "third_quartile": third,
        "samples": len(timing.samples),
    }
