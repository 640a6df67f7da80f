"""Reads a model's config.json into what the later stages need to know."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from h2o_pack.errors import ExitCode, UserError, nearest
from h2o_pack.facts import architectures

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_BYTES = 1 << 20
MAX_COUNT = 1 << 24
DTYPES = ("bfloat16", "float16", "float32")


@dataclass(frozen=True)
class ModelConfig:
    """Shapes of a model whose layers all attend to the whole context.

    heads are query heads, kv_heads those of keys and values; context is
    max_position_embeddings; bits is 0 for weights that are not quantised.
    """

    model_type: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden_size: int
    vocabulary: int
    context: int
    dtype: str
    bits: int = 0


def read_config(path: Path) -> ModelConfig:
    """Read and check config.json; UserError says what is wrong with it."""
    document = read_json(path)
    model_type = document.get("model_type")
    if not isinstance(model_type, str):
        raise unreadable(path, "config.json names no model_type")
    refuse_unsupported(path, document, model_type)
    heads = count(path, document, "num_attention_heads")
    hidden_size = count(path, document, "hidden_size")
    kv_heads = count(path, document, "num_key_value_heads", default=heads)
    head_dim = count(path, document, "head_dim", default=hidden_size // heads)
    if heads % kv_heads:
        raise unreadable(path, f"{heads} query heads cannot share {kv_heads} KV heads evenly")
    dtype = document.get("torch_dtype") or document.get("dtype") or "bfloat16"
    if dtype not in DTYPES:
        raise unreadable(path, f"dtype {dtype!r} is none of {', '.join(DTYPES)}")
    quantization = document.get("quantization")
    bits = quantization.get("bits", 0) if isinstance(quantization, dict) else 0
    return ModelConfig(
        model_type=model_type,
        layers=count(path, document, "num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        hidden_size=hidden_size,
        vocabulary=count(path, document, "vocab_size"),
        context=count(path, document, "max_position_embeddings"),
        dtype=dtype,
        bits=bits if isinstance(bits, int) else 0,
    )


def read_json(path: Path) -> Mapping[str, Any]:
    """Read a JSON object of at most 1 MiB."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise unreadable(path, f"{path.name} cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise unreadable(path, f"{path.name} is larger than 1 MiB")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise unreadable(path, f"{path.name} is not valid JSON") from error
    if not isinstance(document, dict):
        raise unreadable(path, f"{path.name} is not a JSON object")
    return document


def count(
    path: Path, document: Mapping[str, Any], key: str, *, default: int | None = None
) -> int:
    """Return a positive whole number of the config."""
    value = document.get(key)
    if value is None:
        if default is None:
            raise unreadable(path, f"config.json lacks {key}")
        value = default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_COUNT:
        raise unreadable(path, f"{key} in config.json should be a positive whole number")
    return value


def refuse_unsupported(path: Path, document: Mapping[str, Any], model_type: str) -> None:
    """Refuse architectures, layers and code that the H2O cache cannot serve."""
    known = architectures()
    supported = f"Supported: {', '.join(sorted(known))}."
    if model_type not in known:
        raise UserError(
            f'model_type "{model_type}" is not supported',
            where=str(path),
            remedy=nearest(model_type, known) + supported,
            code=ExitCode.MODEL,
        )
    if "model_file" in document:
        raise UserError(
            "config.json names a model_file, Python code that comes with the model",
            where=str(path),
            remedy="h2o-pack runs no code from models. " + supported,
            code=ExitCode.MODEL,
        )
    if slides(document):
        raise UserError(
            f'this "{model_type}" model has sliding-window layers, whose caches do not evict',
            where=str(path),
            remedy="Choose a model whose layers all attend to the whole context. " + supported,
            code=ExitCode.MODEL,
        )


def slides(document: Mapping[str, Any]) -> bool:
    """Tell whether any layer attends to a window shorter than the context."""
    layer_types = document.get("layer_types")
    if isinstance(layer_types, list):
        return any(kind != "full_attention" for kind in layer_types)
    window = document.get("sliding_window")
    if not isinstance(window, int) or document.get("use_sliding_window") is False:
        return False
    context = document.get("max_position_embeddings")
    return not isinstance(context, int) or window < context


def unreadable(path: Path, what: str) -> UserError:
    """Make the error for a model whose files are not as they should be."""
    return UserError(
        what,
        where=str(path),
        remedy="Download the model again, or choose another one.",
        code=ExitCode.MODEL,
    )
