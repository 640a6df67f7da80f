"""Loads models with mlx_lm without running Python code of a model."""

from __future__ import annotations

import json
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from h2o_py.errors import H2OModelError
from h2o_py.files import read_file
from h2o_py.prompts import remember_chunk

DATA = (
    *("*.json", "*.jsonl", "*.jinja", "*.txt", "*.tiktoken"),
    *("model*.safetensors", "tokenizer.model"),
)
"""The files of a model on the hub that are downloaded; none of them is code."""
TRUST = "trust_remote_code"
TRIAL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
if sys.platform == "linux":  # macOS does not enforce such a limit
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
import tokenizers
tokenizers.Tokenizer.from_file(sys.argv[1]).encode("a")
"""


def load(name: str, **options: Any) -> Any:
    """Load a model and its tokenizer as `mlx_lm.load` does.

    Args:
        name: a folder, or an id on huggingface.co.
        **options: arguments of `mlx_lm.load`. Code of the model runs only with
            `trust_remote_code=True`.

    Raises:
        H2OModelError: the model does not exist, it contains code, a pipe or a device, or its
            tokenizer cannot be loaded.

    """
    import mlx_lm.utils  # noqa: PLC0415  importing it takes seconds

    if options.get(TRUST):
        return mlx_lm.utils.load(name, **options)
    folder = folder_of(name, options.pop("revision", None))
    refuse_code(folder)
    refuse_irregular(folder)
    try_tokenizer(folder)
    # Without this, transformers asks at a terminal whether to run a tokenizer's code.
    tokenizer_config = {**(options.pop("tokenizer_config", None) or {}), TRUST: False}
    loaded = mlx_lm.utils.load(str(folder), tokenizer_config=tokenizer_config, **options)
    remember_chunk(loaded[0], folder)
    return loaded


def folder_of(name: str, revision: str | None = None) -> Path:
    """Return the folder of a model, which is downloaded unless `name` is a folder.

    Raises:
        H2OModelError: the hub refuses the model or cannot be reached.

    """
    folder = Path(name)
    return folder if folder.exists() else fetched(name, revision)


def try_tokenizer(folder: Path) -> None:
    """Load a model's tokenizer.json in another process, which a hostile one can end.

    Raises:
        H2OModelError: the process crashed, or took more than 60 seconds of processor time or,
            on Linux, 4 GiB of memory.

    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        return  # it has another kind of tokenizer, or mlx_lm says that it has none
    process = subprocess.run(  # noqa: S603
        [sys.executable, "-P", "-c", TRIAL, path],  # -P: no module of the current folder
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if process.returncode:
        raise H2OModelError("unreadable_tokenizer", where=str(path))


def refuse_irregular(folder: Path) -> None:
    """Refuse a model with pipes or devices among its files, for which mlx_lm would wait.

    Raises:
        H2OModelError: a file of the model is not a regular file.

    """
    for path in sorted(folder.iterdir()):
        is_read = any(fnmatchcase(path.name, pattern) for pattern in (*DATA, "*.safetensors"))
        if is_read and path.exists() and not path.is_file():
            raise H2OModelError("model_not_regular", where=str(path))


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
        H2OModelError: config.json names code, or cannot be read, so that nobody knows.

    """
    path = folder / "config.json"
    try:
        config = json.loads(read_file(path))
    except FileNotFoundError:
        return  # mlx_lm says so itself
    except (OSError, ValueError, RecursionError) as error:
        raise H2OModelError("unreadable_config", where=str(path), reason=str(error)) from error
    if isinstance(config, dict) and config.get("model_file") is not None:
        raise H2OModelError("model_code", where=str(path))
