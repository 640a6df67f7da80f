"""The bytes that a packaged model takes on a device; a later check there compares them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from h2o_pack.models.config import unreadable

if TYPE_CHECKING:
    from pathlib import Path

    from h2o_pack.models.config import ModelConfig
    from h2o_pack.models.resolve import ResolvedModel
    from h2o_py.config import H2OConfig

MAX_HEADER = 100 << 20  # what the safetensors format allows
PREFILL_STEP = 512  # mlx-swift-lm's prefillStepSize
BUFFER_CACHE = 20 << 20  # what mlx-swift-examples give a phone
BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
ACTIVATIONS = 16  # arrays of the hidden size that a layer's chunk holds at most, estimated


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by purpose.

    weights: the tensors of all files. caches: full, with their ledgers. prefill: an
    estimate for a chunk of the prompt. buffer_cache: what MLX may keep of freed buffers.
    """

    weights: int
    caches: int
    prefill: int
    buffer_cache: int = BUFFER_CACHE


def plan_memory(model: ResolvedModel, cache: H2OConfig) -> MemoryPlan:
    """Add up what a model with such caches takes; UserError for unreadable weights."""
    names = (name for name in model.files if name.endswith(".safetensors"))
    return MemoryPlan(
        weights=sum(tensor_bytes(model.path / name) for name in names),
        caches=cache_bytes(model.config, cache.max_size),
        prefill=prefill_bytes(model.config),
    )


def cache_bytes(config: ModelConfig, max_size: int) -> int:
    """Return the bytes of all layers' caches when full.

    A row holds a key and a value, a float32 score, an int32 position and a float32
    novelty; a head besides them the float32 sum of its keys and an int32 victim.
    """
    row = 2 * config.head_dim * BYTES[config.dtype] + 3 * 4
    head = max_size * row + (config.head_dim + 1) * 4
    return config.layers * config.kv_heads * head


def prefill_bytes(config: ModelConfig) -> int:
    """Estimate the bytes of a chunk of the prompt while it is computed."""
    size = BYTES[config.dtype]
    rows = 2 * config.kv_heads * config.head_dim * size
    activations = ACTIVATIONS * config.hidden_size * size
    logits = config.vocabulary * 4
    return PREFILL_STEP * (config.layers * rows + activations) + logits


def tensor_bytes(path: Path) -> int:
    """Return the bytes of a safetensors file's tensors, by its header."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, MAX_HEADER)))
        header.pop("__metadata__", None)
        return max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise unreadable(path, f"{path.name} is not a readable safetensors file") from error
