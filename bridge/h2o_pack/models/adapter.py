"""Reads a LoRA adapter in mlx-lm's format, and checks that mlx-swift-lm can apply it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from h2o_pack.errors import Problems, shown
from h2o_pack.files.text import read_object
from h2o_pack.model import Model, Tensor
from h2o_pack.models.config import BITS
from h2o_pack.models.files import read_tensors
from h2o_pack.results import Count, doc

CONFIG, WEIGHTS = "adapter_config.json", "adapters.safetensors"
TYPES = {"lora": ("lora_a", "lora_b"), "dora": ("lora_a", "lora_b", "m")}
"""The tensors of a layer, by fine_tune_type."""
IN_LAYER = re.compile(r"(?:.*\.)?layers\.(?P<layer>[0-9]{1,6})\.(?P<key>.+)")
REMEDY = "Give a folder that `mlx_lm.lora --train` wrote for this model."
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Adapter:
    """An adapter of a model's last layers."""

    folder: Annotated[Path, doc("Folder of the adapter.")]
    type: Annotated[str, doc("Type: lora or dora.")]
    rank: Annotated[Count, doc("Rank of the matrices that are added.")]
    scale: Annotated[float, doc("Factor of the matrices that are added.")]
    layers: Annotated[Count, doc("Number of last layers that it adapts.")]
    keys: Annotated[tuple[str, ...], doc("Modules of a layer that it adapts.")]
    bytes: Annotated[Count, doc("Bytes of its tensors.")]

    def to_json(self) -> str:
        """Write a configuration that mlx-lm and mlx-swift-lm read in the same way.

        The keys must be written, because each library has other defaults for them. So must the
        number of layers: mlx-lm's -1, for all layers, makes a Swift process crash.
        """
        parameters = {
            "rank": self.rank,
            "scale": self.scale,
            "dropout": 0.0,
            "keys": list(self.keys),
        }
        document = {
            "fine_tune_type": self.type,
            "num_layers": self.layers,
            "lora_parameters": parameters,
        }
        return json.dumps(document, indent=2) + "\n"


def adapted(model: Model, folder: Path | None) -> tuple[Model, Adapter | None]:
    """Return a model whose weights include the bytes of an adapter, and the adapter.

    Raises UserError: all errors in the adapter, or why it does not fit the model.
    """
    if folder is None:
        return model, None
    tensors = model.contents.all_tensors if model.contents else None
    weights = None if tensors is None else {tensor.name: tensor.shape for tensor in tensors}
    adapter = read_adapter(folder, len(model.config.layers), weights, model.id)
    loaded = replace(
        model.weights,
        bytes=model.weights.bytes + adapter.bytes,
        bytes_per_token=model.weights.bytes_per_token + adapter.bytes,
    )
    return replace(model, weights=loaded), adapter


def read_adapter(
    folder: Path, layers: int, weights: Shapes | None = None, where: str = ""
) -> Adapter:
    """Read an adapter's configuration and the headers of its tensors.

    weights: the shapes of the model's tensors, by name; None if unknown. Raises UserError: all
    errors in the adapter, or the modules that the model lacks or has with other shapes.
    """
    problems = Problems(str(folder))
    if not folder.is_dir():
        problems.fail("the adapter is not a folder", REMEDY)
    if missing := [name for name in (CONFIG, WEIGHTS) if not (folder / name).exists()]:
        problems.fail(f"the adapter lacks {' and '.join(missing)}", REMEDY)
    config: dict[str, Any] = {}
    with problems.caught():
        config = read_object(folder / CONFIG)
    tensors: tuple[Tensor, ...] = ()
    with problems.caught():
        tensors = read_tensors(folder / WEIGHTS)
    problems.refuse()
    kind = config.get("fine_tune_type", "lora")
    if not isinstance(kind, str) or kind not in TYPES:
        problems.fail(
            f"fine_tune_type is {shown(kind)}, but mlx-swift-lm applies only "
            f"{' and '.join(TYPES)}",
            "Fuse the adapter into the model with `mlx_lm.fuse`, and package that model.",
        )
    parameters = config.get("lora_parameters")
    table: Any = parameters if isinstance(parameters, dict) else {}
    rank, scale = table.get("rank"), table.get("scale")
    if type(rank) is not int or rank < 1:
        problems.add(
            f"rank of lora_parameters is {shown(rank)}, but must be a whole number "
            "of at least 1",
            REMEDY,
        )
    if type(scale) not in (int, float) or not abs(scale) <= sys.float_info.max:
        problems.add(
            f"scale of lora_parameters is {shown(scale)}, but must be a number", REMEDY
        )
    problems.refuse()
    modules: dict[str, dict[str, tuple[int, ...]]] = {}
    for tensor in sorted(tensors, key=lambda tensor: tensor.name):
        path, _, name = tensor.name.rpartition(".")
        modules.setdefault(path, {})[name] = tensor.shape
    adapted = adapted_places(modules, kind, rank, layers, problems)
    problems.refuse()
    if weights is not None:
        check_fits(modules, weights, where, problems)
        problems.refuse()
    first = min(layer for layer, _ in adapted)
    size = sum(tensor.bytes for tensor in tensors)
    keys = tuple(sorted({key for _, key in adapted}))
    return Adapter(folder, kind, rank, float(scale), layers - first, keys, size)


def adapted_places(
    modules: Mapping[str, Shapes], kind: str, rank: int, layers: int, problems: Problems
) -> set[tuple[int, str]]:
    """Return the layer and the key of each adapted module; add errors for wrong modules.

    modules: the shapes of a module's tensors, by the module's path.
    """
    adapted = set()
    if not modules:
        problems.add(f"{WEIGHTS} has no tensors", REMEDY)
    for path, shapes in modules.items():
        place = IN_LAYER.fullmatch(path)
        if place is None or int(place["layer"]) >= layers:
            problems.add(
                f"the adapter changes {shown(path)}, which is not in any of the model's "
                f"{layers} layers",
                "Train an adapter that changes only layers, or fuse it into the model with "
                "`mlx_lm.fuse`.",
            )
        elif shapes.keys() != set(TYPES[kind]):
            problems.add(
                f"{shown(path)} has the tensors {', '.join(shapes)} instead of "
                f"{', '.join(TYPES[kind])}",
                REMEDY,
            )
        elif any(len(shapes[name]) != 2 for name in TYPES["lora"]):  # noqa: PLR2004
            problems.add(
                f"{shown(path)} is not a linear layer, and mlx-swift-lm adapts only linear "
                "layers",
                "Fuse the adapter into the model with `mlx_lm.fuse`, and package that model.",
            )
        elif (ranks := (shapes["lora_a"][1], shapes["lora_b"][0])) != (rank, rank):
            problems.add(
                f"{shown(path)} has tensors of the ranks {ranks[0]} and {ranks[1]} instead of "
                f"{rank}",
                REMEDY,
            )
        else:
            adapted.add((int(place["layer"]), place["key"]))
    return adapted


def check_fits(
    modules: Mapping[str, Shapes], weights: Shapes, where: str, problems: Problems
) -> None:
    """Add errors for an adapter's modules that the model lacks or has with other shapes."""
    for path, shapes in modules.items():
        weight = weights.get(f"{path}.weight")
        if weight is None:
            problems.add(
                f"the adapter changes {shown(path)}, which {where} does not have", REMEDY
            )
            continue
        inputs, outputs = shapes["lora_a"][0], shapes["lora_b"][1]
        # Quantized inputs are packed into words of 32 bits.
        packings = BITS if f"{path}.scales" in weights else (32,)
        fits = any(weight[1] * 32 == inputs * bits for bits in packings)
        if weight[0] != outputs or not fits:
            problems.add(
                f"{shown(path)} is for {inputs} inputs and {outputs} outputs, but the weight "
                f"of {where} has the shape {list(weight)}",
                REMEDY,
            )
