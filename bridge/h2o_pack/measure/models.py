"""Loads a model by its name with mlx_lm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from h2o_pack.errors import UserError, model_error
from h2o_pack.files.text import read_object
from h2o_pack.hub.resolve import BUNDLED, HUB_ID
from h2o_pack.models.adapter import CONFIG, WEIGHTS
from h2o_pack.models.catalogue import find, unknown
from h2o_pack.models.files import read_tensors
from h2o_pack.spec import local_folder


def loadable(name: str) -> str:
    """Return a name as `load` takes it: a short name, a folder or a hub id.

    Raises UserError: the name is none of these.
    """
    model = find(name)
    if model is not None:
        return model.name
    if local_folder(name) is None and not HUB_ID.fullmatch(name):
        raise unknown(name)
    return name


def locate(name: str) -> str:
    """Return the folder or hub id of a model, or the name itself if it is unknown."""
    model = find(name)
    if model is None:
        return name
    return str(BUNDLED / model.bundled) if model.bundled else (model.hub or model.folder)


def load(name: str, adapter: str | None = None) -> tuple[Any, Any]:
    """Load a model with its LoRA adapter, and its tokenizer; UserError if that fails.

    name: a short name, a folder or a hub id.
    """
    from h2o_py.loading import fetched  # imported late: it imports mlx_lm, which takes seconds
    from h2o_py.loading import load as load_checked

    place = locate(name)
    if adapter is not None:
        read_object(Path(adapter) / CONFIG)
        read_tensors(Path(adapter) / WEIGHTS)
    try:
        folder = place if Path(place).exists() else fetched(place, None)
        loaded: Any = load_checked(str(folder), adapter_path=adapter)
    except UserError:
        raise
    except Exception as error:  # a malicious model can make the libraries raise anything
        raise model_error(
            f'the model "{name}" could not be loaded: {error}',
            "Give a folder, or an id on huggingface.co, of a model for mlx_lm.",
        ) from error
    return loaded[0], loaded[1]
