"""The text of the paper: conversations of allenai/tulu-3-sft-mixture, downloaded once.

The first file of the data set is enough: some hundred thousand conversations. Each becomes
one document, its messages one after another.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from h2o_pack.files.text import usage_error

NAME = "allenai/tulu-3-sft-mixture"
ENOUGH = 4_000_000
"""Characters that are taken: a million tokens or so."""


def documents() -> tuple[str, ...]:
    """Read the first conversations of the data set.

    Raises:
        UserError: pyarrow is missing, or the data set cannot be downloaded.

    """
    if importlib.util.find_spec("pyarrow") is None:
        raise usage_error(
            f"{NAME} is stored as Parquet, and pyarrow is not installed",
            "Run: pip install 'h2o-pack[data]', or give a text of your own with --text FILE.",
        )
    parquet: Any = importlib.import_module("pyarrow.parquet")
    table = parquet.ParquetFile(_first_file())
    batches = table.iter_batches(columns=["messages"], batch_size=512)
    return joined(row["messages"] for batch in batches for row in batch.to_pylist())


def joined(conversations: Iterable[Sequence[Mapping[str, Any]]]) -> tuple[str, ...]:
    """Join each conversation to one document, until there is enough text."""
    found, characters = [], 0
    for messages in conversations:
        if characters >= ENOUGH:
            break
        text = "\n\n".join(str(message["content"]).strip() for message in messages)
        found.append(text)
        characters += len(text)
    return tuple(found)


def _first_file() -> Path:
    hub: Any = importlib.import_module("huggingface_hub")
    try:
        files = hub.HfApi().list_repo_files(NAME, repo_type="dataset")
        parts = sorted(name for name in files if name.endswith(".parquet"))
        return Path(hub.hf_hub_download(NAME, parts[0], repo_type="dataset"))
    except (OSError, ValueError, IndexError) as error:
        raise usage_error(
            f"{NAME} could not be downloaded ({type(error).__name__}: {error})",
            "Try again with a network, or give a text of your own with --text FILE.",
        ) from error
