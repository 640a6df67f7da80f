"""Finds a model by alias, by folder or by its id on the Hugging Face hub."""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

import fnmatch
import json
import re
from dataclasses import dataclass
from pathlib import Path

from h2o_pack.errors import ExitCode, UserError, nearest
from h2o_pack.facts import aliases
from h2o_pack.models.config import ModelConfig, read_config, unreadable

INFERENCE_FILES = (
    "config.json",
    "generation_config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class ResolvedModel:
    """A model on this machine; `files` are the names that inference needs.

    id is the hub id, the alias of an embedded model, or the folder's name.
    """

    id: str
    path: Path
    config: ModelConfig
    files: tuple[str, ...]


def resolve(name: str) -> ResolvedModel:
    """Find a model; UserError when it is unknown, unreadable or unsupported."""
    alias = {each.lower(): found for each, found in aliases().items()}.get(name.lower())
    if alias is not None and alias.embedded:
        return from_folder(alias.name, Path(__file__).parent / alias.embedded)
    if alias is not None:
        return from_folder(alias.hub, download(alias.hub))
    folder = local_folder(name)
    if folder is not None:
        return from_folder(folder.name, folder)
    if name.startswith((".", "/", "~")):
        raise UserError(
            f"{name!r} is not a folder",
            remedy="Give the folder that holds config.json and the weights.",
            code=ExitCode.MODEL,
        )
    if HUB_ID.fullmatch(name):
        return from_folder(name, download(name))
    raise UserError(
        f"there is no model {name!r}",
        remedy=f"{nearest(name, aliases())}Give an alias ({', '.join(aliases())}), "
        "a folder, or an id on huggingface.co such as mlx-community/Qwen3-4B-4bit.",
        code=ExitCode.MODEL,
    )


def local_folder(name: str) -> Path | None:
    """Return the folder that `name` is the path of, or None."""
    try:
        path = Path(name).expanduser()
        return path.resolve() if name and path.is_dir() else None
    except (OSError, RuntimeError, ValueError):  # a name too long, an unknown ~user, a NUL
        return None


def from_folder(model_id: str, path: Path) -> ResolvedModel:
    """Describe a model folder after checking that nothing needed is missing."""
    config = read_config(path / "config.json")
    names = sorted(entry.name for entry in path.iterdir() if entry.is_file())
    files = tuple(name for name in names if inference_needs(name))
    weights = [name for name in files if name.endswith(".safetensors")]
    if not weights:
        raise unreadable(path, "there is no model*.safetensors")
    if "tokenizer.json" not in files:
        raise unreadable(path, "there is no tokenizer.json")
    if "model.safetensors.index.json" in files:
        missing = sorted(shards(path / "model.safetensors.index.json") - set(weights))
        if missing:
            raise unreadable(path, f"the index names {missing[0]!r}, which is missing")
    return ResolvedModel(id=model_id, path=path, config=config, files=files)


def inference_needs(name: str) -> bool:
    """Tell whether a file of a model repository is needed to run the model."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in INFERENCE_FILES)


def shards(index: Path) -> set[str]:
    """Return the weight files that a safetensors index names."""
    try:
        return set(json.loads(index.read_text("utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise unreadable(index, "the index of the weights is not readable") from error


def download(hub_id: str) -> Path:
    """Fetch a model from the hub into its cache; the config first, then the rest.

    An unsupported architecture is so refused before its weights are fetched.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        first = snapshot_download(hub_id, allow_patterns=["config.json"])
        read_config(Path(first) / "config.json")
        return Path(snapshot_download(hub_id, allow_patterns=list(INFERENCE_FILES)))
    except GatedRepoError as error:
        raise hub_error(
            hub_id,
            "asks for its licence to be accepted",
            f"Accept it at https://huggingface.co/{hub_id}, then run `hf auth login`.",
        ) from error
    except RepositoryNotFoundError as error:
        raise hub_error(
            hub_id,
            "is not on the hub, or is private",
            f"{nearest(hub_id, [each.hub for each in aliases().values() if each.hub])}"
            "Check the spelling, or run `hf auth login` if it is private.",
        ) from error
    except LocalEntryNotFoundError as error:
        raise hub_error(
            hub_id,
            "cannot be fetched: the hub cannot be reached and the model is not in its cache",
            "Check the network, or give a local folder as --model.",
        ) from error
    except (HfHubHTTPError, OSError) as error:
        raise hub_error(
            hub_id,
            f"cannot be fetched: {str(error).splitlines()[0] if str(error) else error!r}",
            "Run the command again; what has arrived is kept.",
        ) from error


def hub_error(hub_id: str, what: str, remedy: str) -> UserError:
    """Make the error for a model that the hub does not give."""
    return UserError(f"{hub_id} {what}", remedy=remedy, code=ExitCode.MODEL)
