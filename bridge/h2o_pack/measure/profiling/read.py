"""Reads what budgets need from a profile's JSON."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from h2o_pack.measure.profiling.budget_rule import LayerMeasure
from h2o_pack.measure.profiling.report import FORMAT, Profile
from h2o_pack.measure.profiling.row_rule import Reach

_KINDS = ("full", "sliding", "other")
_ROUNDING = 1e-4


@dataclass(frozen=True)
class Measures:
    """A profile's layers, one entry for each cache of the model.

    model: its name. unfit: why H2O caches cannot serve it, or None. reaches: how far back
    the layers with full attention look; none where the profile does not tell.
    """

    model: str
    unfit: str | None
    layers: tuple[LayerMeasure, ...]
    reaches: tuple[Reach, ...] = ()


def measures(profile: Profile) -> Measures:
    """What budgets need of a profile."""
    return _measures(json.loads(profile.to_json()), "profile")


def read_measures(path: Path) -> Measures:
    """Read a profile.json.

    Raises:
        ValueError: it is not one; names the file and the entry.
        OSError: it cannot be read.

    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is not JSON ({error}). Give the profile.json of `h2o-pack profile`."
        ) from None
    return _measures(document, str(path))


def _measures(document: Any, source: str) -> Measures:
    if not isinstance(document, dict) or not {"layers", "skipped"} <= document.keys():
        raise ValueError(
            f"{source} is not a profile: it has no layers and skipped. Give the "
            "profile.json of `h2o-pack profile`."
        )
    if document.get("format") != FORMAT:
        raise ValueError(
            f"{source}: format = {document.get('format')!r}; this release reads {FORMAT}. "
            "Profile the model again."
        )
    profiled = _entries(document["layers"], f"{source}: layers")
    skipped = _entries(document["skipped"], f"{source}: skipped")
    layers = [_profiled(entry, f"{source}: layers[{i}]") for i, entry in enumerate(profiled)]
    for i, entry in enumerate(skipped):
        index = _index(entry, f"{source}: skipped[{i}]")
        layers.append(LayerMeasure(index, "skipped", None, None))
    layers.sort(key=lambda layer: layer.index)
    if [layer.index for layer in layers] != list(range(len(layers))):
        raise ValueError(
            f"{source}: layers and skipped do not name every layer once. Profile the model "
            "again."
        )
    unfit = document.get("unfit")
    return Measures(
        str(document.get("model")),
        None if unfit is None else str(unfit),
        tuple(layers),
        _reaches(document, profiled, source),
    )


def _reaches(
    document: dict[str, Any], profiled: Sequence[Any], source: str
) -> tuple[Reach, ...]:
    """How far each layer with full attention looks; nothing in a profile without it."""
    sizes = document.get("windows")
    if sizes is None:
        return ()
    if not _increasing(sizes):
        raise ValueError(
            f"{source}: windows must be increasing numbers of tokens. Profile the model again."
        )
    found = []
    for i, entry in enumerate(profiled):
        if entry["kind"] != "full":
            continue
        where, beyond = f"{source}: layers[{i}].beyond", entry.get("beyond")
        if not isinstance(beyond, list) or len(beyond) != len(sizes):
            raise ValueError(
                f"{where} must have a share for each of windows. Profile the model again."
            )
        shares = [_share(each, f"{where}[{k}]") for k, each in enumerate(beyond)]
        found.append(Reach(_index(entry, where), tuple(sizes), tuple(shares)))
    return tuple(sorted(found, key=lambda each: each.index))


def _increasing(sizes: Any) -> bool:
    whole = isinstance(sizes, list) and all(type(each) is int for each in sizes)
    return whole and all(a < b for a, b in itertools.pairwise([0, *sizes])) and bool(sizes)


def _share(value: Any, where: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not -_ROUNDING <= value <= 1 + _ROUNDING:
        raise ValueError(f"{where} = {value!r} must be a share. Profile the model again.")
    return min(max(float(value), 0.0), 1.0)


def _entries(found: Any, where: str) -> Sequence[Any]:
    if not isinstance(found, list):
        raise ValueError(f"{where} must be a list. Profile the model again.")  # noqa: TRY004
    return found


def _profiled(entry: Any, where: str) -> LayerMeasure:
    index = _index(entry, where)
    if entry.get("kind") not in _KINDS:
        kinds = ", ".join(_KINDS)
        raise ValueError(f"{where}.kind = {entry.get('kind')!r} is not one of {kinds}.")
    figures = entry.get("figures")
    found = [_number(figures, name, where) for name in ("concentration", "entropy")]
    return LayerMeasure(index, entry["kind"], *found)


def _number(figures: Any, name: str, where: str) -> float:
    value: Any = figures.get(name) if isinstance(figures, dict) else None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:
        raise ValueError(
            f"{where}.figures.{name} = {value!r} must be a number, 0 or more. Profile the "
            "model again."
        )
    return float(value)


def _index(entry: Any, where: str) -> int:
    index = entry.get("index") if isinstance(entry, dict) else None
    if not isinstance(index, int) or isinstance(index, bool):
        raise ValueError(  # noqa: TRY004  what is wrong is the file
            f"{where}.index = {index!r} must be an integer. Profile the model again."
        )
    return index
