"""Budgets that differ from layer to layer, read from a JSON file.

    {
      "format": 1,
      "layers": [
        {"heavy_budget": 300, "recent_budget": 208},
        {"heavy_budget": 150, "recent_budget": 102, "max_size": 256},
        null,
        ...
      ],
      "recall": [1]
    }

`layers` has one entry per cache of the model, in order: the rows for heavy hitters and for the
newest tokens, or null if the layer uses the common settings or keeps mlx_lm's cache. A layer
may have its own `max_size`; all layers share the other settings. `recall` is optional and lists
the layers that recall; without it, all layers do.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

from h2o_py.config import H2OConfig
from h2o_py.errors import H2OBudgetsError, H2OConfigError
from h2o_py.files import read_file

FORMAT = 1
_LEAST = {"heavy_budget": 0, "recent_budget": 1, "max_size": 1}


@dataclasses.dataclass(frozen=True)
class LayerBudget:
    """How many rows a layer has for heavy hitters and for the newest tokens; its `max_size`.

    max_size: None to use the common `max_size`.
    """

    heavy_budget: int
    recent_budget: int
    max_size: int | None = None

    def to_dict(self) -> dict[str, int]:
        """Plain values for JSON; `max_size` is left out if it is None."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclasses.dataclass(frozen=True)
class Budgets:
    """Budgets of the layers of a model: one entry per layer.

    source: the file or name that errors show.

    recall: indices of the layers that recall, increasing; None for all that evict.
    """

    layers: tuple[LayerBudget | None, ...]
    source: str = "budgets"
    recall: tuple[int, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the document to write to a file."""
        layers = [None if budget is None else budget.to_dict() for budget in self.layers]
        recall = {} if self.recall is None else {"recall": list(self.recall)}
        return {"format": FORMAT, "layers": layers, **recall}

    def config_of(self, layer: int, common: H2OConfig) -> H2OConfig:
        """Return the common configuration with this layer's budgets.

        A layer that `recall` does not list gets no recall, unless `common.recall` itself lists
        layers.

        Raises:
            H2OConfigError: the budgets do not fit into the layer's rows; `where` names the
                entry.

        """
        budget, config = self.layers[layer], common.of_layer(layer)
        everywhere = common.recall is not None and common.recall.layers is None
        if everywhere and self.recall is not None and layer not in self.recall:
            config = dataclasses.replace(config, recall=None)
        if budget is None:
            return config
        changes: dict[str, Any] = {**budget.to_dict()}
        try:
            return dataclasses.replace(config, **changes)
        except H2OConfigError as error:
            error.where = f"{self.source}: layers[{layer}]"
            raise

    def sizes(self, common: int) -> set[int]:
        """Return the layers' `max_size`; `common` is for layers that have none of their own."""
        return {(budget and budget.max_size) or common for budget in self.layers}

    def check_layers(self, evicting: list[bool], family: str) -> None:
        """Refuse budgets made for another model.

        Args:
            evicting: whether each of the model's caches is an H2O cache.
            family: the name of the model in errors.

        Raises:
            H2OBudgetsError: the number of layers differs, or a budget is for a layer without
                an H2O cache.

        """
        if len(self.layers) != len(evicting):
            raise H2OBudgetsError(
                "wrong_layer_count",
                where=self.source,
                layers=len(self.layers),
                caches=len(evicting),
                family=family,
            )
        for i, (budget, evicts) in enumerate(zip(self.layers, evicting, strict=True)):
            if budget is not None and not evicts:
                where = f"{self.source}: layers[{i}]"
                raise H2OBudgetsError("layer_keeps_own_cache", where=where, family=family)
        for index in self.recall or ():
            if not evicting[index]:
                where = f"{self.source}: recall"
                raise H2OBudgetsError(
                    "recall_without_eviction", where=where, family=family, layer=index
                )


def load_budgets(path: str | Path) -> Budgets:
    """Read a file of budgets.

    Raises:
        H2OBudgetsError: the file is not a budgets document; `where` names file and entry.
        OSError: the file cannot be read.

    """
    return parse_budgets(read_file(Path(path)), str(path))


def parse_budgets(data: bytes, source: str) -> Budgets:
    """Read the content of a budgets file.

    Args:
        data: the content.
        source: the name of the file in errors.

    Raises:
        H2OBudgetsError: the content is not a budgets document.

    """
    try:
        document = json.loads(data.decode())
    except RecursionError:
        raise H2OBudgetsError(
            "not_json", where=source, reason="it is nested too deep"
        ) from None
    except ValueError as error:  # not JSON, or not UTF-8
        raise H2OBudgetsError("not_json", where=source, reason=error) from None
    return read_budgets(document, source)


def read_budgets(document: Any, source: str) -> Budgets:
    """Check a budgets document that was parsed from JSON.

    Args:
        document: the parsed JSON.
        source: the name of the document in errors.

    Raises:
        H2OBudgetsError: it is not a budgets document.

    """
    if not isinstance(document, dict) or set(document) - {"recall"} != {"format", "layers"}:
        raise H2OBudgetsError("not_budgets", where=source, format=FORMAT)
    if document["format"] != FORMAT:
        raise H2OBudgetsError(
            "other_format", where=source, found=document["format"], format=FORMAT
        )
    entries = document["layers"] if isinstance(document["layers"], list) else None
    if entries is None:
        raise H2OBudgetsError("not_a_list", where=source)
    layers = [_layer_budget(entry, f"{source}: layers[{i}]") for i, entry in enumerate(entries)]
    return Budgets(tuple(layers), source, _recall(document.get("recall"), len(layers), source))


def _recall(indices: Any, layers: int, source: str) -> tuple[int, ...] | None:
    if indices is None:
        return None
    valid = range(layers)
    if (
        not isinstance(indices, list)
        or not all(
            isinstance(index, int) and not isinstance(index, bool) and index in valid
            for index in indices
        )
        or any(one >= other for one, other in itertools.pairwise(indices))
    ):
        raise H2OBudgetsError("not_recall_layers", where=f"{source}: recall")
    return tuple(indices)


def _layer_budget(entry: Any, where: str) -> LayerBudget | None:
    if entry is None:
        return None
    required = set(_LEAST) - {"max_size"}
    if not isinstance(entry, dict) or not required <= set(entry) <= set(_LEAST):
        raise H2OBudgetsError("not_a_budget", where=where)
    for name, value in entry.items():
        least = _LEAST[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise H2OBudgetsError(
                "out_of_range",
                where=where,
                field=name,
                value=value,
                allowed=f"an integer of at least {least}",
            )
    return LayerBudget(**entry)
