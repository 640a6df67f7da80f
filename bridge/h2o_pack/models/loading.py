"""Whether mlx_lm can load a model, found out from its configuration and headers alone.

mlx_lm's own code builds the module and converts the tensors' names and shapes. Nothing is
computed and no weights are read: the tensors are those of files as long as the model's
that hold headers and, behind them, nothing.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from h2o_pack.architectures.model import Headers, Tensor
from h2o_pack.errors import Problems, in_one_line, shown, unreadable
from h2o_pack.models.files import CONFIG
from h2o_pack.models.index import some
from h2o_pack.models.safetensors import LENGTH

Shapes = dict[str, tuple[int, ...]]


def check_loads(headers: Headers, where: str) -> None:
    """Refuse a model whose tensors are not those that its configuration asks for.

    Args:
        headers: the model's config.json and tensors.
        where: the model, for messages.

    Raises:
        UserError: mlx_lm cannot build the model, or all tensors that are missing, of
            another shape, or unknown to it.

    """
    with tempfile.TemporaryDirectory(prefix="h2o-pack-") as name:
        folder = Path(name)
        (folder / CONFIG).write_text(json.dumps(dict(headers.config)), "utf-8")
        for file, tensors in headers.tensors.items():
            write_hollow(folder / file, tensors)
        given, needed = shapes(folder, where)
    problems = Problems(where)
    for names, what in (
        (needed.keys() - given.keys(), "the weights lack {names}"),
        (
            given.keys() - needed.keys(),
            "the weights have {names}, of which config.json knows nothing",
        ),
    ):
        if names:
            problems.add(what.format(names=some(sorted(names), "tensor", "tensors")))
    other = sorted(n for n in given.keys() & needed.keys() if given[n] != needed[n])
    if other:
        first = other[0]
        problems.add(
            f"{some(other, 'tensor', 'tensors')} {'has' if len(other) == 1 else 'have'} "
            f"another shape than config.json asks for: {shown(first)} has "
            f"{list(given[first])} instead of {list(needed[first])}"
        )
    problems.refuse()


def write_hollow(path: Path, tensors: tuple[Tensor, ...]) -> None:
    """Write a safetensors file of these tensors that takes no room: all elements are 0."""
    header: dict[str, Any] = {}
    end = 0
    for each in tensors:
        begin, end = end, end + each.bytes
        header[each.name] = {
            "dtype": each.dtype,
            "shape": each.shape,
            "data_offsets": (begin, end),
        }
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(LENGTH, "little") + text)
        file.truncate(LENGTH + len(text) + end)


def shapes(folder: Path, where: str) -> tuple[Shapes, Shapes]:
    """Return the shapes of the tensors that a model gets and of those that it needs."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm import utils

    given: Shapes = {}

    def classes(config: dict[str, Any]) -> tuple[type, type]:
        model, arguments = utils._get_classes(config)  # noqa: SLF001  a default to wrap

        class Described(model):  # type: ignore[misc, valid-type]
            def load_weights(self, weights: Any, **_: Any) -> Any:
                given.update({name: array.shape for name, array in weights})
                return self

        return Described, arguments

    try:
        model, _ = utils.load_model(folder, lazy=True, strict=False, get_model_classes=classes)
    except Exception as error:  # what upstream's code raises for odd values is anything
        said = f"mlx_lm cannot build a model from {CONFIG}: {in_one_line(error)}"
        raise unreadable(where, said) from error
    needed: Any = tree_flatten(model.parameters())
    return given, {name: array.shape for name, array in needed if isinstance(array, mx.array)}
