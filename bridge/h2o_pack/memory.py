"""The bytes that a packaged model takes on a device; a later check there compares them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from h2o_pack.models.model import Model, ModelConfig
    from h2o_py.config import H2OConfig

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


def plan_memory(model: Model, cache: H2OConfig) -> MemoryPlan:
    """Add up what a model with such caches takes; UserError for unreadable weights."""
    return MemoryPlan(
        weights=model.weights.bytes,
        caches=cache_bytes(model.config, cache.max_size),
        prefill=prefill_bytes(model.config),
    )


def cache_bytes(config: ModelConfig, max_size: int) -> int:
    """Return the bytes of all layers' caches when full.

    A row of a layer that evicts holds a key and a value, a float32 score, an int32
    position and a float32 novelty; a head besides them the float32 sum of its keys and an
    int32 victim. Other layers: the rows of the window, and the recurrent state.
    """
    total = 0
    for layer in config.layers:
        rows = layer.row_elements * BYTES[config.dtype]
        total += layer.state_bytes + layer.window * rows
        if layer.kind == "full":
            ledger = layer.kv_heads * (max_size * 3 + layer.key_dim + 1) * 4
            total += max_size * rows + ledger
    return total


def prefill_bytes(config: ModelConfig) -> int:
    """Estimate the bytes of a chunk of the prompt while it is computed."""
    size = BYTES[config.dtype]
    rows = sum(layer.row_elements for layer in config.layers) * size
    activations = ACTIVATIONS * config.hidden_size * size
    logits = config.vocabulary * 4
    return PREFILL_STEP * (rows + activations) + logits
