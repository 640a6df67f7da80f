"""Checkpoints as the hub has them: true names and shapes, no values."""

import json
import math
import struct
from pathlib import Path
from typing import Any

from h2o_pack.models.files import BYTES
from tests.bridge.trees import CONFIG, TOKENIZER, build_tree
from tests.hub.repository import Content, sparse

Described = dict[str, tuple[str, list[int]]]

TENSORS: Described = {
    "model.embed_tokens.weight": ("F32", [100, 32]),
    "model.layers.0.self_attn.q_proj.weight": ("F32", [32, 32]),
    "model.layers.1.self_attn.q_proj.weight": ("F32", [32, 32]),
    "model.norm.weight": ("F32", [32]),
}
EMBEDDING, ALL = 100 * 32 * 4, 100 * 32 * 4 + 2 * 32 * 32 * 4 + 32 * 4


def header(tensors: Described) -> tuple[dict[str, Any], int]:
    """Lay tensors out one behind the other; return the header and the bytes of the data."""
    entries: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + math.prod(shape) * BYTES[dtype]
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    return entries, end


def packed(document: Any, data: int | bytes = 0) -> bytes:
    """Write a safetensors file of a header, in JSON as MLX writes it, and bytes or zeros."""
    text = document
    if not isinstance(document, bytes):
        text = json.dumps(document, separators=(",", ":")).encode()
    body = data if isinstance(data, bytes) else bytes(data)
    return struct.pack("<Q", len(text)) + text + body


def checkpoint(tensors: Described = TENSORS) -> bytes:
    """Write a safetensors file with zeros in it."""
    return packed(*header(tensors))


def sparse_checkpoint(path: Path, tensors: Described) -> Content:
    """Make a file of a hub with the real size of large tensors, without room on the disk."""
    document, data = header(tensors)
    head = packed(document)
    return sparse(path, len(head) + data, head)


def index(**files: Described) -> str:
    """Write an index; `model_1` stands for model-1.safetensors."""
    names = {file: file.replace("_", "-") + ".safetensors" for file in files}
    mapping = {tensor: names[file] for file, tensors in files.items() for tensor in tensors}
    return json.dumps({"metadata": {}, "weight_map": mapping})


def repository(tensors: Described = TENSORS, **changes: Any) -> dict[str, Any]:
    """Return the files of a small model on the hub, and some that nobody needs."""
    config = {key: value for key, value in {**CONFIG, **changes}.items() if value is not None}
    return {
        "config.json": json.dumps(config),
        "model.safetensors": checkpoint(tensors),
        "tokenizer.json": TOKENIZER,
        "README.md": "not needed",
        "original/model.safetensors": b"not needed",
    }


def folder_of(folder: Path, tensors: Described = TENSORS, **changes: Any) -> Path:
    """Write such a model to a folder."""
    files = repository(tensors, **changes)
    weights = files.pop("model.safetensors")
    files.pop("original/model.safetensors")
    build_tree(folder, files)
    (folder / "model.safetensors").write_bytes(weights)
    return folder
