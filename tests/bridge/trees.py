"""Small file trees: models, packages, upstream checkouts."""

import dataclasses
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from h2o_pack.files import lock
from h2o_pack.hub.resolve import find_model
from h2o_pack.model import Model
from h2o_pack.spec import ModelSpec

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
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}


def resolve(name: str, *, revision: str = "") -> Model:
    """Find the model of a name and describe it."""
    return find_model(ModelSpec(name, revision=revision))


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
    counts = []
    for parent, _folders, files in os.walk(folder):  # passes over what is gone by then
        for name in files:
            with suppress(FileNotFoundError):
                if name.endswith(suffix):
                    counts.append((Path(parent) / name).stat().st_size)
    return counts


def relock(package: Path, **changes: Any) -> None:
    """Change some of what a package's lock says."""
    record = dataclasses.replace(lock.read(package), **changes)
    (package / lock.NAME).write_text(record.to_json(), encoding="utf-8")


def program(folder: Path, name: str, script: str) -> Path:
    """Write a program in the shell's language; a first line of its own names another."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def build_tree(folder: Path, files: dict[str, str]) -> Path:
    """Write {relative path: text} below a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


NO_FILES: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
    "link to itself": lambda path: path.symlink_to(path.name),
    "long": lambda path: (path.touch(), os.truncate(path, 1 << 40)),  # no room on the disk
}
"""Make something at a path that nobody should read to its end as a file."""

TOKENIZER = json.dumps({
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
    "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"?": 0, "a": 1}, "unk_token": "?"},
})  # fmt: skip


def pad_endlessly(folder: Path) -> None:
    """Give a model a tokenizer that pads each text to 8 GiB of ids, beyond all limits."""
    padding = {
        "strategy": {"Fixed": 2 << 30}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "a",
    }  # fmt: skip
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**document, "padding": padding}), "utf-8")


def write_model(folder: Path, **changes: Any) -> Path:
    """Write the folder of a model that loads; a change to None removes a key of the config."""
    config = {key: value for key, value in {**CONFIG, **changes}.items() if value is not None}
    build_tree(
        folder,
        {
            "config.json": json.dumps(config),
            "tokenizer.json": TOKENIZER,
            "README.md": "not needed",
        },
    )
    shapes = tensor_shapes()
    tensors = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors")
    return folder


def tensor_shapes() -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors of a model of `CONFIG`."""
    hidden, inner, head = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["head_dim"]
    queries = CONFIG["num_attention_heads"] * head
    keys = CONFIG["num_key_value_heads"] * head
    layer = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_norm": (head,),
        "self_attn.k_norm": (head,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    layers = {
        f"model.layers.{index}.{name}.weight": shape
        for index in range(CONFIG["num_hidden_layers"])
        for name, shape in layer.items()
    }
    outer = {
        "model.embed_tokens.weight": (CONFIG["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    return outer | layers
