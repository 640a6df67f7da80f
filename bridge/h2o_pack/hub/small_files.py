"""Reads small files of a model, wherever it is, without its weights."""

from __future__ import annotations

from collections.abc import Mapping

from h2o_pack.architectures.model import Model
from h2o_pack.errors import unreadable
from h2o_pack.files.local_file import local_file


def read_small(model: Model, largest: Mapping[str, int]) -> dict[str, bytes] | None:
    """Read those files that a model has; None where the hub would know and cannot be asked.

    Args:
        model: in a folder, or on the hub.
        largest: the bytes that a file may have, by its name.

    Raises:
        UserError: one is larger, or cannot be read.

    """
    sizes = {file.path: file.size for file in model.files if file.path in largest}
    for name, size in sizes.items():
        if size > largest[name]:
            raise unreadable(model.id, f"{name} is larger than {largest[name] >> 20} MiB")
    if model.folder is None:
        return from_hub(model, sizes)
    return {name: local_file(model.folder, name).read_bytes() for name in sizes}


def from_hub(model: Model, sizes: Mapping[str, int]) -> dict[str, bytes] | None:
    """Ask the hub for files of so many bytes; None where it cannot be asked."""
    from h2o_pack.hub.client import Repository
    from h2o_pack.hub.errors import UnreachableError

    repository = Repository(model.id, model.commit)
    try:
        return {name: repository.read(name, 0, n) if n else b"" for name, n in sizes.items()}
    except UnreachableError:
        return None
