"""Reads what budgets need from a profile's JSON."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from h2o_pack.errors import UserError
from h2o_pack.measure.errors import read_text, usage_error
from h2o_pack.measure.profiling.budget_rule import LayerMeasure
from h2o_pack.measure.profiling.report import Profile
from h2o_pack.measure.profiling.row_rule import Reach

AGAIN = "Profile the model again."
GIVE = "Give the profile.json of `h2o-pack profile`."

Amount = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=-1e-4, le=1 + 1e-4)]
"""A share of attention; sums of float32 may leave 0 to 1 by a little."""


@dataclass(frozen=True)
class Means:
    """A layer's figures that budgets can follow."""

    concentration: Amount
    entropy: Amount


@dataclass(frozen=True)
class Layer:
    """A layer with a profile."""

    index: int
    kind: Literal["full", "sliding", "other"]
    figures: Means
    beyond: tuple[Share, ...] = ()


@dataclass(frozen=True)
class Skipped:
    """A layer without a profile."""

    index: int


@dataclass(frozen=True)
class Document:
    """What is read of profile.json; profiles before 0.1 have no windows."""

    format: Literal[1]
    layers: tuple[Layer, ...]
    skipped: tuple[Skipped, ...]
    model: str = ""
    unfit: str | None = None
    windows: tuple[Annotated[int, Meta(ge=1)], ...] = ()


@dataclass(frozen=True)
class Measures:
    """A profile's layers, one entry for each cache of the model.

    model: its name. unfit: why H2O caches cannot serve it, or None. reaches: how far back
    the layers with full attention look; none where the profile does not say.
    """

    model: str
    unfit: str | None
    layers: tuple[LayerMeasure, ...]
    reaches: tuple[Reach, ...] = ()


def measures(profile: Profile) -> Measures:
    """Return what budgets need of a profile."""
    return _measures(msgspec.convert(msgspec.to_builtins(profile), Document), "profile")


def read_measures(path: Path) -> Measures:
    """Read a profile.json.

    Raises:
        UserError: it cannot be read or is not one; names the file and the entry.

    """
    text = read_text(path, GIVE)
    try:
        return _measures(msgspec.json.decode(text, type=Document), str(path))
    except msgspec.ValidationError as error:
        raise usage_error(f"{path} is not a profile: {error}", GIVE) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise usage_error(f"{path} is not JSON: {error}", GIVE) from None


def _measures(document: Document, source: str) -> Measures:
    layers = [
        LayerMeasure(each.index, each.kind, each.figures.concentration, each.figures.entropy)
        for each in document.layers
    ]
    layers += [LayerMeasure(each.index, "skipped", None, None) for each in document.skipped]
    layers.sort(key=lambda layer: layer.index)
    if [layer.index for layer in layers] != list(range(len(layers))):
        raise usage_error(f"{source}: layers and skipped must name every layer once", AGAIN)
    return Measures(document.model, document.unfit, tuple(layers), _reaches(document, source))


def _reaches(document: Document, source: str) -> tuple[Reach, ...]:
    """Return how far each layer with full attention looks; nothing without windows."""
    sizes = document.windows
    if not sizes:
        return ()
    if any(a >= b for a, b in itertools.pairwise(sizes)):
        raise usage_error(f"{source}: windows must be increasing numbers of tokens", AGAIN)
    found = []
    for i, layer in enumerate(document.layers):
        if layer.kind != "full":
            continue
        if len(layer.beyond) != len(sizes):
            raise _unlike(f"{source}: layers[{i}].beyond", len(sizes))
        shares = tuple(min(max(share, 0.0), 1.0) for share in layer.beyond)
        found.append(Reach(layer.index, sizes, shares))
    return tuple(sorted(found, key=lambda each: each.index))


def _unlike(where: str, windows: int) -> UserError:
    return usage_error(f"{where} must have a share for each of {windows} windows", AGAIN)
