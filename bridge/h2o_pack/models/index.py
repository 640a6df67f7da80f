"""Checks a model's safetensors files against their index, and against each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from h2o_pack.architectures.model import Tensor
from h2o_pack.errors import Problems, shown
from h2o_pack.files.paths import why_unsafe

NAME = "model.safetensors.index.json"
SHOWN = 3


def weight_map(document: Mapping[str, Any], problems: Problems) -> dict[str, str]:
    """Return the file of each tensor by the index; names that are no files are noted."""
    given = document.get("weight_map")
    if not isinstance(given, dict):
        problems.add(f"{NAME} has no weight_map from tensors to files")
        return {}
    found: dict[str, str] = {}
    for tensor, file in given.items():
        reason = why_unsafe(file)
        if reason is not None:
            problems.add(f"{NAME} names the file {shown(file)}, which {reason}")
        else:
            found[tensor] = file
    return found


def check_files(
    mapping: Mapping[str, str], weights: Mapping[str, object], problems: Problems
) -> None:
    """Note files that only the index names."""
    for file in sorted(set(mapping.values()) - set(weights)):
        problems.add(
            f"{NAME} names {shown(file)}, which is missing or is not a model*.safetensors"
        )


def check_tensors(
    mapping: Mapping[str, str],
    weights: Mapping[str, tuple[Tensor, ...]],
    problems: Problems,
) -> None:
    """Note tensors that are not where the index says, and those that it does not name."""
    where = {tensor.name: file for file, tensors in weights.items() for tensor in tensors}
    missing = [name for name in mapping if name not in where]
    moved = [
        name
        for name, file in mapping.items()
        if name in where and file in weights and where[name] != file
    ]
    unnamed = [name for name in where if name not in mapping]
    for names, what in (
        (missing, "names {names}, which no file has"),
        (moved, "names another file than the one that has {names}"),
        (unnamed, "does not name {names}, which the files have"),
    ):
        if names:
            said = what.format(names=some(names, "tensor", "tensors"))
            problems.add(f"{NAME} is stale: it {said}")


def check_apart(weights: Mapping[str, tuple[Tensor, ...]], problems: Problems) -> None:
    """Note tensors that two files have: which one is loaded would be chance."""
    files: dict[str, list[str]] = {}
    for file, tensors in sorted(weights.items()):
        for tensor in tensors:
            files.setdefault(tensor.name, []).append(file)
    twice = {name: found for name, found in files.items() if len(found) > 1}
    if twice:
        first, second, *_ = next(iter(twice.values()))
        names = some(list(twice), "tensor", "tensors")
        problems.add(f"{first} and {second} both have {names}")


def some(names: list[str], one: str, many: str) -> str:
    """Name a few of them."""
    listed = ", ".join(shown(name) for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{one if len(names) == 1 else many} {listed}{more}"
