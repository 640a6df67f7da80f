"""The losses of caches that `h2o-pack eval --output` has measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from h2o_pack.facts import FOLDER
from h2o_pack.files.text import read_json
from h2o_pack.results import Count, Result, doc

NAME = "losses.json"
BUNDLED = FOLDER / NAME
WHOLE = 1.0  # share of rows in a cache that never evicts


@dataclass(frozen=True)
class Loss:
    """The loss of a cache, compared with a cache that keeps all rows in 16 bits."""

    kl: Annotated[
        float, doc("KL divergence from the predictions of the full cache, in nats per token.")
    ]
    loses_answers: Annotated[
        bool,
        doc(
            "Whether fewer answers were right than with all rows; the confidence interval of "
            "the difference excludes 0."
        ),
    ]

    @property
    def order(self) -> tuple[bool, float]:
        """The key that orders caches: those that lose answers come last; then KL decides."""
        return self.loses_answers, self.kl


NO_LOSS = Loss(0.0, loses_answers=False)


@dataclass(frozen=True)
class MeasuredLoss:
    """The measured loss of a cache that keeps a share of the rows."""

    kv: Annotated[str, doc("Storage of the rows.")]
    share: Annotated[
        float,
        Meta(ge=0, le=1),
        doc("Rows that a head keeps, as a share of the tokens read."),
    ]
    recall: Annotated[bool, doc("Whether tokens read evicted tokens from an archive.")]
    loss: Loss


@dataclass(frozen=True, kw_only=True)
class LossTable(Result):
    """The measurements of one model; a cache of all rows in 16 bits loses nothing."""

    model: Annotated[str, doc("Model that was measured.")]
    parameters_sha256: Annotated[str, doc("Digest of its parameters.")]
    text: Annotated[str, doc("Text that the model read.")]
    samples: Annotated[Count, doc("Number of samples behind each figure.")]
    tokens: Annotated[Count, doc("Tokens in a sample.")]
    caches: Annotated[
        tuple[MeasuredLoss, ...],
        Meta(min_length=1),
        doc("Losses by storage, rows and recall."),
    ]

    def points(self, kv: str, *, recall: bool) -> dict[float, Loss]:
        """Return the losses of a storage by the share of rows; recall: of what is evicted."""
        points = {WHOLE: NO_LOSS} if kv == "16" else {}
        for cache in self.caches:
            if cache.kv == kv and (cache.recall == recall or cache.share == WHOLE):
                points[cache.share] = cache.loss
        return points

    def loss(self, kv: str, share: float, *, recall: bool) -> Loss | None:
        """Return the loss of a storage that keeps a share of the rows.

        Between two measured shares, KL is interpolated linearly over the logarithm of the
        share, and the answers of the smaller share count. None if so few rows were not
        measured.
        """
        points = self.points(kv, recall=recall)
        if share in points:
            return points[share]
        for (fewer, below), (more, above) in pairwise(sorted(points.items())):
            if fewer < share < more:
                part = math.log(share / fewer) / math.log(more / fewer)
                kl = below.kl + part * (above.kl - below.kl)
                return Loss(kl, below.loses_answers)
        return None


def read_losses(path: Path | None = None) -> LossTable:
    """Read a user's own table, or facts/losses.json; UserError if it is not a table."""
    remedy = "Give the losses.json that `h2o-pack eval --output DIR` wrote."
    return read_json(path or BUNDLED, LossTable, "a table of losses", remedy)
