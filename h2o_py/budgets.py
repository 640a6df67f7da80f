"""Budgets that differ from layer to layer, read from a JSON file.

    {
      "format": 1,
      "layers": [
        {"heavy_budget": 300, "recent_budget": 208},
        null,
        ...
      ]
    }

One entry for each cache of the model, in its order: rows for heavy hitters and newest
tokens that are never evicted, or null where the layer keeps the settings common to all
(and where it keeps the model's own cache). `max_size` and the rest are common.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from h2o_py.config import H2OConfig

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class LayerBudget:
    """Rows of one layer for heavy hitters and for the newest tokens."""

    heavy_budget: int
    recent_budget: int


@dataclasses.dataclass(frozen=True)
class Budgets:
    """One entry a layer; `source` is what errors call them."""

    layers: tuple[LayerBudget | None, ...]
    source: str = "budgets"

    def config_of(self, layer: int, common: H2OConfig) -> H2OConfig:
        """The common configuration with this layer's budgets.

        Raises:
            ValueError: they do not fit into the common `max_size`.

        """
        budget = self.layers[layer]
        if budget is None:
            return common
        try:
            return dataclasses.replace(common, **vars(budget))
        except ValueError as error:
            raise ValueError(f"{self.source}: layers[{layer}]: {error}") from None

    def check_layers(self, evicting: list[bool], family: str) -> None:
        """Refuse budgets of another model.

        Args:
            evicting: for each of the model's caches, whether it is an H2O cache.
            family: what the error calls the model.

        Raises:
            ValueError: the number of layers differs, or a budget has no H2O cache.

        """
        if len(self.layers) != len(evicting):
            raise ValueError(
                f"{self.source}: layers has {len(self.layers)} entries; {family} has "
                f"{len(evicting)} caches. Write one entry for each, null for the common "
                "budgets."
            )
        for i, (budget, evicts) in enumerate(zip(self.layers, evicting, strict=True)):
            if budget is not None and not evicts:
                raise ValueError(
                    f"{self.source}: layers[{i}] has budgets, but {family} has no full "
                    "attention there, and the layer keeps its own cache. Write null."
                )


def load_budgets(path: str | Path) -> Budgets:
    """Read a file of budgets.

    Raises:
        ValueError: the file is not such JSON; names the file, the entry and what it needs.
        OSError: the file cannot be read.

    """
    source = str(path)
    text = Path(path).read_text(encoding="utf-8")
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{source} is not JSON: {error}.") from None
    if not isinstance(document, dict) or set(document) != {"format", "layers"}:
        raise ValueError(f'{source} must be {{"format": {FORMAT}, "layers": [...]}}.')
    if document["format"] != FORMAT:
        found = document["format"]
        raise ValueError(f"{source}: format = {found!r}; this release reads {FORMAT}.")
    entries = document["layers"] if isinstance(document["layers"], list) else None
    if entries is None:
        raise ValueError(f"{source}: layers must be a list, one entry for each cache.")
    layers = [_layer_budget(entry, f"{source}: layers[{i}]") for i, entry in enumerate(entries)]
    return Budgets(tuple(layers), source)


def _layer_budget(entry: Any, where: str) -> LayerBudget | None:
    if entry is None:
        return None
    names = [field.name for field in dataclasses.fields(LayerBudget)]
    if not isinstance(entry, dict) or set(entry) != set(names):
        raise ValueError(f"{where} must be null or have just {' and '.join(names)}.")
    for name, least in zip(names, (0, 1), strict=True):
        value = entry[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{where}.{name} = {value!r} must be an integer >= {least}.")
    return LayerBudget(**entry)
