"""A model's files: which of them packages need, and what they say together."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from h2o_pack.errors import Problems, shown
from h2o_pack.files.paths import why_bad_link, why_unsafe
from h2o_pack.model import DTYPES, Headers, Model, ModelFile, Tensor
from h2o_pack.models.config import describe
from h2o_pack.models.json_file import INDEX_BYTES, read_object
from h2o_pack.models.tensors import (
    INDEX,
    check_apart,
    check_files,
    check_tensors,
    read_tensors,
    total,
    weigh,
    weight_map,
)

CONFIG = "config.json"
WEIGHTS = "model*.safetensors"
TOKENIZER = "tokenizer.json"
NEEDED = (
    CONFIG,
    "generation_config.json",
    WEIGHTS,
    INDEX,
    TOKENIZER,
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
CARD = "readme.md"
NOTICES = (CARD, "license*", "licence*", "copying*", "notice*", "use_policy*")
"""What says on which terms a model may be passed on, in lower case."""


def belongs(name: str) -> bool:
    """Tell whether a file of a model repository goes into packages."""
    return inference_needs(name) or is_notice(name)


def is_notice(name: str) -> bool:
    """Tell whether a file is the model card, or the text of a license or notice."""
    return any(fnmatch.fnmatchcase(name.lower(), each) for each in NOTICES) and "/" not in name


def inference_needs(name: str) -> bool:
    """Tell whether a file of a model repository is needed to run the model."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in NEEDED) and "/" not in name


def holds_weights(name: str) -> bool:
    """Tell whether a file is one of those that mlx_lm loads weights from."""
    return fnmatch.fnmatchcase(name, WEIGHTS) and "/" not in name


def check_complete(names: Collection[str], problems: Problems) -> None:
    """Note what is missing among the files that inference needs."""
    if CONFIG not in names:
        problems.add(f"there is no {CONFIG}")
    if not any(map(holds_weights, names)):
        problems.add(f"there is no {WEIGHTS}")
    if TOKENIZER not in names:
        problems.add(f"there is no {TOKENIZER}")


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
        check_files(contents.index, contents.tensors, problems)
        check_tensors(contents.index, contents.tensors, problems)
    check_apart(contents.tensors, problems)
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


def from_folder(
    model_id: str, folder: Path, *, commit: str = "", assume_full_attention: bool = False
) -> Model:
    """Describe a model folder; UserError tells all that is wrong with it.

    Args:
        model_id: what the model is called.
        folder: has config.json, the weights and the tokenizer.
        commit: of the hub that the folder is a snapshot of.
        assume_full_attention: take an unknown architecture for a plain one.

    """
    problems = Problems(str(folder))
    listed = list_files(folder, problems)
    check_complete({each.path for each in listed}, problems)
    config = {}
    with problems.caught():
        config = read_object(folder / CONFIG)
    mapping = None
    if any(each.path == INDEX for each in listed):
        with problems.caught():
            mapping = weight_map(read_object(folder / INDEX, INDEX_BYTES), problems)
    tensors = {}
    for each in listed:
        if holds_weights(each.path):
            with problems.caught():
                tensors[each.path] = read_tensors(folder / each.path)
    if problems.found and config:
        with problems.caught():
            describe(
                config,
                str(folder / CONFIG),
                assume_full_attention=assume_full_attention,
            )
    if problems.found and mapping is not None:
        names = {each.path for each in listed if holds_weights(each.path)}
        check_files(mapping, dict.fromkeys(names), problems)
    problems.refuse()
    contents = Contents(model_id, commit, config, mapping, tensors, listed)
    return inspect(
        contents, str(folder), folder=folder, assume_full_attention=assume_full_attention
    )


def list_files(folder: Path, problems: Problems) -> tuple[ModelFile, ...]:
    """List what goes into packages; links to elsewhere and odd names are noted."""
    found = []
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        problems.fail(f"the folder cannot be read: {error.strerror}")
    for path in entries:
        if not belongs(path.name):
            continue
        reason = why_unsafe(path.name)
        if reason is not None:
            problems.add(f"the file name {shown(path.name)} {reason}", "Rename the file.")
            continue
        reason = why_bad_link(path, folder) if path.is_symlink() else None
        if reason is not None:
            problems.add(
                f"{path.name} {reason}", "Copy the file into the folder, or use a hard link."
            )
        elif path.is_file():
            found.append(ModelFile(path.name, path.stat().st_size))
    return tuple(found)
