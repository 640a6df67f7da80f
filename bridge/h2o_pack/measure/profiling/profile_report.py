"""The types of a profile, which `h2o-pack profile --json` prints."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from h2o_pack.files.text import read_json
from h2o_pack.measure.machine import Machine
from h2o_pack.results import Result, doc

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
class LayerProfile:
    """The attention of one layer, as means over heads, samples and queries."""

    index: Annotated[int, doc("Index of the layer's cache in the model.")]
    cache: Annotated[str, doc("Class of mlx_lm's cache for the layer.")]
    kind: Annotated[Kind, doc("Which tokens a query sees: all, a window, or others.")]
    window: Annotated[int | None, doc("Tokens that a sliding layer sees.")]
    figures: Figures
    deviations: Annotated[Figures, doc("Standard deviations between samples.")]
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


@dataclass(frozen=True)
class SkippedLayer:
    """A layer whose attention was not profiled."""

    index: Annotated[int, doc("Index of the layer's cache in the model.")]
    cache: Annotated[str, doc("Class of mlx_lm's cache for the layer.")]
    reason: Annotated[str, doc("Why it was not profiled.")]


@dataclass(frozen=True, kw_only=True)
class Profile(Result):
    """A model's attention by layer."""

    machine: Machine
    model: str
    family: Annotated[str, doc("mlx_lm's module for the model.")]
    text: Annotated[str, doc("Name of the text that the model read.")]
    tokens: Annotated[int, doc("Tokens per sample.")]
    samples: Annotated[int, doc("Number of pieces of the text.")]
    first_row: Annotated[int, doc("Position of the first query in the means.")]
    unfit: Annotated[str | None, doc("Why the model cannot use H2O caches; null if it can.")]
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
