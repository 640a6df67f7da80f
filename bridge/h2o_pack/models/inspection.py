"""Puts together what a model's own files say: configuration, index and headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from h2o_pack.architectures.model import DTYPES, Headers, Model, ModelFile, Tensor
from h2o_pack.errors import Problems
from h2o_pack.models import index as indices
from h2o_pack.models.config import describe
from h2o_pack.models.safetensors import total
from h2o_pack.models.weights import weigh


@dataclass(frozen=True)
class Contents:
    """The content of a model's files, weights by their headers only.

    index: {tensor: file}, None without an index.
    """

    id: str
    commit: str
    config: Mapping[str, Any]
    index: Mapping[str, str] | None
    tensors: Mapping[str, tuple[Tensor, ...]]
    files: tuple[ModelFile, ...]


def inspect(
    contents: Contents,
    where: str,
    *,
    folder: Path | None = None,
    assume_full_attention: bool = False,
) -> Model:
    """Describe a model; UserError tells all that is wrong with its files.

    Args:
        contents: what the files say.
        where: the model, for messages.
        folder: where all files lie, None if they must be downloaded.
        assume_full_attention: take an unknown architecture for a plain one.

    """
    problems = Problems(where)
    if contents.index is not None:
        indices.check_files(contents.index, contents.tensors, problems)
        indices.check_tensors(contents.index, contents.tensors, problems)
    indices.check_apart(contents.tensors, problems)
    if not total(contents.tensors):
        problems.add("the files with weights have no tensors")
    weights = weigh(total(contents.tensors))
    with problems.caught():
        found = describe(
            contents.config,
            f"{where}/config.json",
            assume_full_attention=assume_full_attention,
            stored_dtype=weights.dtype if weights.dtype in DTYPES else "",
        )
    problems.refuse()
    config = found.config
    if config.experts:
        weights = weigh(
            total(contents.tensors),
            experts=config.experts,
            experts_per_token=config.experts_per_token,
        )
    return Model(
        id=contents.id,
        commit=contents.commit,
        config=config,
        weights=weights,
        files=contents.files,
        folder=folder,
        assumed=found.assumed,
        remarks=found.remarks,
        headers=Headers(contents.config, contents.tensors),
    )
