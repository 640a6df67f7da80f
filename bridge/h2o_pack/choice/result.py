"""A choice: the candidates side by side, which one was taken and why not the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from h2o_pack.bundling.app_size import AppSize
from h2o_pack.choice.losses import Loss
from h2o_pack.plan.report import PlanResult
from h2o_pack.results import Count, Result, doc

Reason = Literal[
    "no shapes",
    "context",
    "upstream",
    "app size",
    "memory",
    "speed",
    "storage",
    "not measured",
    "loses more",
    "smaller",
]


@dataclass(frozen=True)
class Refusal:
    """Why a candidate was not taken."""

    reason: Annotated[Reason, doc("What it fails by.")]
    says: Annotated[str, doc("The same in one line, with figures.")]


@dataclass(frozen=True)
class CacheCandidate:
    """The largest cache of a storage that fits on all devices."""

    kv: Annotated[str, doc("How rows are stored.")]
    max_kv: Annotated[Count, doc("Rows per layer; 0 where none fit.")]
    share: Annotated[float, doc("Rows as a part of the conversation.")]
    recall: Annotated[bool, doc("Whether evicted rows come back from files.")]
    needed: Annotated[Count, doc("Bytes of the app on the device that it leaves least on.")]
    headroom_share: Annotated[float, doc("What it leaves there, as a part of the limit.")]
    sustained: Annotated[
        float | None, doc("Tokens per second after ten minutes on the slowest; null: unknown.")
    ]
    loss: Annotated[Loss | None, doc("By the table; null where nobody measured it.")]
    refused: Annotated[Refusal | None, doc("null for the one that was taken.")]


@dataclass(frozen=True)
class ModelCandidate:
    """A model, with the cache that it would have."""

    model: Annotated[str, doc("What --model takes.")]
    weights: Annotated[Count, doc("Bytes.")]
    size: Annotated[
        AppSize | None, doc("Of an app with it alone; null where its shapes are not stated.")
    ]
    cache: Annotated[CacheCandidate | None, doc("null where it was not looked for.")]
    refused: Annotated[Refusal | None, doc("null for the one that was taken.")]


@dataclass(frozen=True, kw_only=True)
class Choice(Result):
    """What was chosen for some devices."""

    devices: Annotated[tuple[str, ...], doc("All of them must hold it.")]
    context: Annotated[Count, doc("Tokens of the longest conversation.")]
    min_speed: Annotated[float, doc("Tokens per second after ten minutes; 0 is no floor.")]
    margin: Annotated[float, doc("Part of each device's limit that stays free.")]
    losses_of: Annotated[str, doc("The model whose measured losses put caches in order.")]
    models: Annotated[tuple[ModelCandidate, ...], doc("The largest first.")]
    caches: Annotated[
        tuple[CacheCandidate, ...],
        doc("Of the chosen model, or of the only one, by what they lose."),
    ]
    plan: Annotated[PlanResult | None, doc("What was chosen, planned; null if nothing was.")]

    @property
    def chosen(self) -> ModelCandidate | None:
        """The model that was taken."""
        return next((each for each in self.models if each.refused is None), None)
