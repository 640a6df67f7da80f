"""Loads models with mlx_lm without running Python code of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from h2o_py.errors import H2OModelError
from h2o_py.prompts import remember_chunk

DATA = (
    *("*.json", "*.jsonl", "*.jinja", "*.txt", "*.tiktoken"),
    *("model*.safetensors", "tokenizer.model"),
)
"""The files of a model on the hub that are downloaded; none of them is code."""
TRUST = "trust_remote_code"


def load(name: str, **options: Any) -> Any:
    """Load a model and its tokenizer as `mlx_lm.load` does.

    Args:
        name: a folder, or an id on huggingface.co.
        **options: arguments of `mlx_lm.load`. Code of the model runs only with
            `trust_remote_code=True`.

    Raises:
        H2OModelError: the model does not exist, or it contains code.

    """
    import mlx_lm.utils  # noqa: PLC0415  importing it takes seconds

    if options.get(TRUST):
        return mlx_lm.utils.load(name, **options)
    folder = Path(name)
    if not folder.exists():
        folder = fetched(name, options.pop("revision", None))
    refuse_code(folder)
    # Without this, transformers asks at a terminal whether to run a tokenizer's code.
    tokenizer_config = {**(options.pop("tokenizer_config", None) or {}), TRUST: False}
    loaded = mlx_lm.utils.load(str(folder), tokenizer_config=tokenizer_config, **options)
    remember_chunk(loaded[0], folder)
    return loaded


def fetched(name: str, revision: str | None) -> Path:
    """Download a model from the hub without its code; return its folder.

    Raises:
        H2OModelError: the hub refuses the model or cannot be reached.

    """
    from huggingface_hub import snapshot_download  # noqa: PLC0415  only downloads need it
    from huggingface_hub.errors import (  # type: ignore[attr-defined]  # noqa: PLC0415
        HfHubHTTPError,
        HTTPError,
    )

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(DATA)))
    except (OSError, ValueError, HfHubHTTPError, HTTPError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise H2OModelError("model_not_found", model=name, reason=reason) from error


def refuse_code(folder: Path) -> None:
    """Refuse a model whose config.json names Python code of the model.

    Raises:
        H2OModelError: config.json names code.

    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return  # mlx_lm reports an unreadable file itself
    if isinstance(config, dict) and config.get("model_file") is not None:
        raise H2OModelError("model_code", where=str(path))
