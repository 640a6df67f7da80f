"""Small file trees: models, packages, upstream checkouts."""

from __future__ import annotations

import json
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 32,
    "intermediate_size": 64,
    "head_dim": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 1024,
    "torch_dtype": "float32",
}


def tree(folder: Path) -> dict[str, str]:
    """Return every file of a folder with its text."""
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8", errors="replace")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def names(folder: Path) -> list[str]:
    """Return what lies in a folder, hidden entries included."""
    return sorted(path.name for path in folder.iterdir())


def sizes(folder: Path, suffix: str) -> list[int]:
    """Return the bytes of all files of a suffix; others may change the folder meanwhile."""
    found = []
    for parent, _folders, files in os.walk(folder):  # passes over what is gone by then
        for name in files:
            with suppress(FileNotFoundError):
                if name.endswith(suffix):
                    found.append((Path(parent) / name).stat().st_size)
    return found


def build_tree(folder: Path, files: dict[str, str]) -> Path:
    """Write {relative path: text} below a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def write_model(folder: Path, **changes: Any) -> Path:
    """Write a model folder; a change to None removes a key of the config."""
    config = {key: value for key, value in {**CONFIG, **changes}.items() if value is not None}
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    build_tree(
        folder,
        {"config.json": json.dumps(config), "tokenizer.json": "{}", "README.md": "not needed"},
    )
    weights = struct.pack("<Q", len(header)) + header + bytes(8)
    (folder / "model.safetensors").write_bytes(weights)
    return folder
