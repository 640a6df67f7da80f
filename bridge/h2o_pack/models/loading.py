"""Checks, in another process, that the libraries can load and run a model's files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from h2o_pack.errors import Problems, in_one_line, shown, unreadable
from h2o_pack.files.paths import CONFIG
from h2o_pack.model import Contents, Model, Tensor
from h2o_pack.models.files import LENGTH, TOKENIZER, some_tensors
from h2o_pack.models.trial import attempt


def check_loads(contents: Contents) -> None:
    """Check that a model has the tensors that its configuration needs.

    Raises UserError: mlx_lm cannot build the model, or all tensors that are missing, unknown or
    have another shape.
    """
    with hollow_model(contents.config, contents.tensors) as folder:
        built = attempt("arguments", contents.id, folder=str(folder))
    actual, expected = built["given"], built["needed"]
    problems = Problems(contents.id)
    for names, what in (
        (expected.keys() - actual.keys(), "the weights lack {names}"),
        (
            actual.keys() - expected.keys(),
            "the weights have {names}, which config.json does not describe",
        ),
    ):
        if names:
            problems.add(what.format(names=some_tensors(sorted(names))))
    other = sorted(n for n in actual.keys() & expected.keys() if actual[n] != expected[n])
    if other:
        first = other[0]
        problems.add(
            f"{some_tensors(other)} {'has' if len(other) == 1 else 'have'} a "
            f"shape that does not follow from config.json: {shown(first)} has "
            f"{list(actual[first])} instead of {list(expected[first])}"
        )
    problems.refuse()


@contextmanager
def hollow_model(
    config: Mapping[str, Any], tensors: Mapping[str, tuple[Tensor, ...]]
) -> Iterator[Path]:
    """Make a temporary folder with a config.json and `write_hollow`'s files of tensors."""
    with tempfile.TemporaryDirectory(prefix="h2o-pack-") as name:
        folder = Path(name)
        (folder / CONFIG).write_text(json.dumps(dict(config)), "utf-8")
        for file, own in tensors.items():
            write_hollow(folder / file, own)
        yield folder


def write_hollow(path: Path, tensors: tuple[Tensor, ...]) -> None:
    """Write a sparse safetensors file of tensors of zeros, which takes no disk space."""
    header: dict[str, Any] = {}
    end = 0
    for tensor in tensors:
        begin, end = end, end + tensor.bytes
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": (begin, end),
        }
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(LENGTH, "little") + text)
        file.truncate(LENGTH + len(text) + end)


LARGEST = 64 << 20
"""The most bytes of a tokenizer.json that is read before the model is downloaded."""


def try_tokenizer(path: Path, where: str) -> None:
    """Refuse a tokenizer.json that the library cannot load, or that encodes no tokens."""
    if not attempt("tokenizer", where, path=str(path.resolve())):
        raise unreadable(where, f"{TOKENIZER} turns a text into no tokens")


def tokenizer(path: str) -> int:
    """Return the number of tokens of one letter; `trial` runs this."""
    from tokenizers import Tokenizer

    try:
        return len(Tokenizer.from_file(path).encode("a").ids)
    except Exception as error:  # the library raises no more specific class
        raise unreadable(path, f"{TOKENIZER} cannot be loaded: {in_one_line(error)}") from error


SMALL = 64 << 20
"""The most bytes of weights of a model that must compute one step as a test."""


def try_model(model: Model, folder: Path) -> None:
    """Refuse a model that cannot read a prompt, or, if it is small, cannot compute a step."""
    problems = Problems(model.id)
    with problems.caught():
        try_tokenizer(folder / TOKENIZER, model.id)
    if model.weights.bytes <= SMALL:
        with problems.caught():
            try_step(folder, model.config.vocabulary, model.id)
    problems.refuse()


def try_step(folder: Path, vocabulary: int, where: str) -> None:
    """Refuse a model that does not give one logit for each token of its vocabulary."""
    step = attempt("step", where, folder=str(folder))
    shape = step["shape"]
    if shape != [1, 1, vocabulary]:
        what = (
            f"one step of the model gives logits of the shape {shape} for {vocabulary} tokens"
        )
        raise unreadable(where, what)
    if not step["finite"]:
        raise unreadable(
            where, "one step of the model gives logits that are not finite numbers"
        )
